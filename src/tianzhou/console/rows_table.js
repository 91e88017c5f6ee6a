// A page of a long list: the console sorts and cuts it, and a row's operations are behind one menu.
// Its cells are compiled once, so that an open menu and the focus stay while figures change.
export default {
  template: `
    <q-table
      class="rows-table" :columns="columns" :rows="rows" row-key="key" :pagination="pagination"
      :rows-per-page-options="sizes" flat bordered dense wrap-cells binary-state-sort column-sort-order="ad"
      @update:pagination="() => {}" @request="request => $emit('turned', request.pagination)"
    >
      <template v-slot:body-cell="cell">
        <q-td :props="cell" :class="[cell.col.kind, cell.row.old ? 'old' : '']">
          <a v-if="cell.col.href" class="text-primary" :href="address(cell.col.href, cell.row)">{{ cell.value }}</a>
          <template v-else-if="cell.col.kind === 'rate'">
            <svg viewBox="0 0 60 16" width="60" height="16" aria-hidden="true">
              <polyline v-if="cell.row.line" :points="cell.row.line" />
            </svg>
            <span class="figure">{{ cell.value }}</span>
          </template>
          <q-btn
            v-else-if="cell.col.kind === 'menu'" flat round dense size="sm" icon="more_vert" aria-haspopup="menu"
            :aria-label="menu_label.replace('{name}', cell.row.key)"
          >
            <q-menu auto-close anchor="bottom right" self="top right" @keydown="moved">
              <q-list dense class="operations">
                <template v-for="name in cell.row.operations" :key="name">
                  <q-separator v-if="operations[name].parted" />
                  <q-item
                    role="menuitem" clickable :href="operations[name].href ? address(operations[name].href, cell.row) : undefined"
                    :class="operations[name].grave ? 'text-negative' : ''"
                    @click="operations[name].href || $emit('chosen', {key: cell.row.key, operation: name})"
                  >
                    <q-item-section avatar><q-icon :name="operations[name].icon" size="xs" :class="operations[name].grave || 'text-grey'" /></q-item-section>
                    <q-item-section>{{ operations[name].label }}</q-item-section>
                  </q-item>
                </template>
              </q-list>
            </q-menu>
          </q-btn>
          <span v-else :title="cell.row[cell.col.name + '_at'] || (cell.row.old ? cell.row.measured_at : undefined)">{{ cell.value }}</span>
        </q-td>
      </template>
      <template v-slot:no-data>{{ nothing }}</template>
    </q-table>
  `,
  props: {
    columns: Array,
    rows: Array,
    pagination: Object,
    operations: Object,
    sizes: Array,
    menu_label: String,
    nothing: String,
  },
  methods: {
    address(template, row) {
      return template.replace("{key}", encodeURIComponent(row.key));
    },
    moved(event) {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const items = [...event.currentTarget.querySelectorAll("[role=menuitem]")];
      const at = items.indexOf(document.activeElement);
      items[(at + step + items.length) % items.length]?.focus();
    },
  },
};
