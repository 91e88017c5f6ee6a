"""Additions to the toolkit's style: legible in the dark, as narrow as a phone, usable by keyboard."""

from __future__ import annotations

from typing import Final

PRIMARY: Final = "#1f5f8b"
"""Colour of the head, of buttons, and of links on a light background."""
STYLE: Final = """
@layer overrides {
  .text-grey { color: #5f6368 !important; }
  .body--dark .text-grey, .body--dark .text-grey-8 { color: #bdbdbd !important; }
  .nicegui-link:not(.text-white) { color: var(--q-primary); }
  .body--dark .text-primary, .body--dark .nicegui-link:not(.text-white) { color: #7cb8e4 !important; }
  .body--dark .q-field--focused .q-field__label { color: #7cb8e4 !important; }
  .text-positive { color: #1a7f37 !important; }
  .body--dark .text-positive { color: #4cc36a !important; }
  .body--dark .text-negative { color: #ff8a80 !important; }
  .q-badge.bg-warning { color: #000 !important; }
  .nicegui-content, .q-dialog { overflow-wrap: anywhere; }
  .nicegui-content .nicegui-row > *, .nicegui-content .nicegui-column > * { min-width: 0; max-width: 100%; }
  .q-table td { overflow-wrap: anywhere; min-width: 4.5rem; }
  .q-table td.time, .q-table td.number { white-space: nowrap !important; overflow-wrap: normal; }
  .q-table th { overflow-wrap: normal; }
  .q-table thead th { vertical-align: bottom; }
  th:focus-visible, a:focus-visible { outline: 2px solid currentColor; outline-offset: -2px; }
  [role=heading] { overflow-wrap: anywhere; }
  .q-card { scroll-margin-top: 4rem; outline: none; }
  .rows-table .number, .rows-table .rate { font-variant-numeric: tabular-nums; white-space: nowrap; }
  .rows-table td.old { font-style: italic; opacity: .8; }
  .rows-table .rate svg { display: inline-block; vertical-align: middle; margin-right: .75rem; overflow: visible; }
  .rows-table .rate polyline { fill: none; stroke: var(--q-primary); stroke-opacity: .65; stroke-width: 1.25; }
  .body--dark .rows-table .rate polyline { stroke: #7cb8e4; }
  .rows-table .rate .figure { display: inline-block; min-width: 3.5rem; }
  .rows-table tr > :last-child { position: sticky; right: 0; width: 1px; background: #fff; }
  .body--dark .rows-table tr > :last-child { background: var(--q-dark); }
  .operations .q-item__section--avatar { min-width: 0; padding-right: .75rem; }
  .nicegui-content .q-field, .nicegui-content .nicegui-row { max-width: 100%; }
}
"""
"""Style in the layer after the toolkit's layer, so that it overrides the toolkit's colours."""
SCRIPT: Final = """
<script>
(() => {
  let held = null, sought = location.hash.slice(1), leaving = false;
  const look = () => {
    const part = sought && document.querySelector(`[data-part="${CSS.escape(sought)}"]`);
    if (part) {
      sought = '';
      part.scrollIntoView();
      part.focus({preventScroll: true});
    }
    for (const one of document.querySelectorAll('th.sortable')) {
      one.tabIndex = 0;
      const way = one.classList.contains('sort-desc') ? 'descending' : 'ascending';
      one.setAttribute('aria-sort', one.classList.contains('sorted') ? way : 'none');
    }
    if (!held || held.link.isConnected || document.activeElement !== document.body) return;
    const links = document.getElementById(held.table)?.querySelectorAll('td a[href]') ?? [];
    [...links].find(one => one.getAttribute('href') === held.href)?.focus({preventScroll: true});
  };
  document.addEventListener('focusin', event => {
    const link = event.target.closest('td a[href]');
    const table = link?.closest('.q-table__container');
    held = table ? {link, href: link.getAttribute('href'), table: table.id} : null;
  });
  document.addEventListener('focusout', event => setTimeout(() => {
    if (held && held.link === event.target && held.link.isConnected) held = null;
  }));
  document.addEventListener('click', event => {
    const link = event.target.closest?.('a[data-back]');
    const here = location.pathname + location.search + location.hash;
    if (link) link.href = `${link.dataset.back}?to=${encodeURIComponent(here)}`;
  }, true);
  document.addEventListener('submit', event => leaving = !event.defaultPrevented);
  window.addEventListener('pageshow', () => leaving = false);
  window.leaveFor = address => leaving || location.assign(address);
  document.addEventListener('keydown', event => {
    const heading = event.target.closest?.('th.sortable');
    if (!heading || !['Enter', ' '].includes(event.key)) return;
    event.preventDefault();
    heading.click();
  });
  new MutationObserver(look).observe(document, {
    subtree: true, childList: true, attributes: true, attributeFilter: ['class'],
  });
})();
</script>
"""
"""Script that makes the toolkit's mouse elements usable by keyboard: sort headings, which also announce the order.

`leaveFor` opens an address, unless the browser waits for the reply to a form, such as the log-out form. The browser
would drop that reply.

The script completes links that return to the page (`frame_links`) with the present query and fragment.

The script scrolls to the part that the address' fragment names, because the console draws this part after the browser
has searched for it.

A table's links are recreated when its rows change, as on live pages. The script keeps the focus on the link that had
it.
"""
