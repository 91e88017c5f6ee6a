"""Measures of a page in a browser: its width, its possible actions, and hardly readable texts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_TOO_WIDE = """
width => {
  if (document.scrollingElement.scrollWidth <= width) return [];
  const found = [...document.querySelectorAll('body *')]
    .filter(one => one.getBoundingClientRect().right > width && !one.closest('.scroll, .q-drawer'))
    .slice(0, 5).map(one => one.outerHTML.slice(0, 150));
  return found.length ? found : [`the page: ${document.scrollingElement.scrollWidth}`];
}
"""
_TABLES_CUT = """
() => [...document.querySelectorAll('.q-table__middle')]
  .filter(one => one.clientWidth && one.scrollWidth > one.clientWidth + 1)
  .map(one => `${one.scrollWidth} > ${one.clientWidth}: ${one.innerText.slice(0, 80)}`)
"""
_MARK_ACTIONS = """
() => {
  let number = 0;
  const actions = 'a[href], button, input, select, textarea, summary, [tabindex], [role=button], [role=checkbox]';
  for (const one of document.querySelectorAll('body *')) {
    const style = getComputedStyle(one), place = one.getBoundingClientRect();
    const unseen = !place.width || !place.height || style.visibility === 'hidden' || style.pointerEvents === 'none';
    if (unseen || one.closest(':disabled, .disabled, [aria-hidden=true], .q-drawer')) continue;
    // Only one of a list of tabs has a stop; arrows lead to the others.
    const beside = one.closest('[role=tablist], label, [tabindex="0"], a[href], button');
    const clicked = style.cursor === 'pointer' && !beside && !one.querySelector(actions);
    if (clicked || (one.matches(actions) && one.tabIndex >= 0)) one.dataset.action = number++;
  }
}
"""
_NOTE_STOPS = """
() => {
  window.stopped = new Set([document.activeElement?.dataset.action]);
  document.addEventListener('focusin', event => window.stopped.add(event.target.dataset.action));
  return [...document.querySelectorAll('[data-action]')].map(one => one.dataset.action);
}
"""
_FOCUS_STOPS = """
() => {
  for (const one of document.querySelectorAll('[data-action]')) if (one.tabIndex >= 0) one.focus({preventScroll: true});
  document.activeElement?.blur();
}
"""
_NOT_STOPPED = """
() => Object.fromEntries([...document.querySelectorAll('[data-action]')]
  .filter(one => !window.stopped.has(one.dataset.action))
  .map(one => [one.dataset.action, one.outerHTML.slice(0, 150)]))
"""
_FAINT = """
() => {
  const parts = text => { const found = text.match(/[\\d.]+/g).map(Number); return [...found, 1].slice(0, 4); };
  const part = value => (value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const light = color => 0.2126 * part(color[0]) + 0.7152 * part(color[1]) + 0.0722 * part(color[2]);
  const over = (top, ground) => [0, 1, 2].map(i => top[i] * top[3] + ground[i] * (1 - top[3]));
  const found = new Set(), known = new Map();
  // What all elements from the outermost one to this one paint. Texts share most of these elements.
  const painted = one => {
    if (!one) return {ground: [255, 255, 255], opacity: 1};
    if (!known.has(one)) {
      const outside = painted(one.parentElement), style = getComputedStyle(one);
      const ground = over(parts(style.backgroundColor), outside.ground);
      known.set(one, {ground, opacity: outside.opacity * style.opacity});
    }
    return known.get(one);
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text; (text = texts.nextNode()); ) {
    const one = text.parentElement, style = getComputedStyle(one);
    const unseen = !text.textContent.trim() || !one.getBoundingClientRect().width || style.visibility === 'hidden';
    // What is off may be pale, and an arrow for the order shows when the pointer is there.
    if (unseen || one.closest('script, style, :disabled, .disabled, .q-drawer, .q-table__sort-icon')) continue;
    const {ground, opacity} = painted(one);
    const [red, green, blue, alpha] = parts(style.color);
    const lights = [light(over([red, green, blue, alpha * opacity], ground)), light(ground)];
    const contrast = (Math.max(...lights) + 0.05) / (Math.min(...lights) + 0.05);
    if (contrast < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5))
      found.add(`${contrast.toFixed(1)} ${one.className} ${text.textContent.trim().slice(0, 40)}`);
  }
  return [...found];
}
"""
_WORDS = """
() => {
  const labels = 'th, button, label, summary, [role=heading], [role=tab], .q-field__label, .q-badge, .q-drawer';
  const found = new Set();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text; (text = texts.nextNode()); ) {
    const one = text.parentElement;
    if (one.closest('script, style, i, .q-icon, .ace_editor') || !text.textContent.trim()) continue;
    found.add([one.closest(labels) ? 'label' : one.closest('[tabindex], td') ? 'data' : 'text', text.textContent]);
  }
  for (const one of document.querySelectorAll('[aria-label], [placeholder], [title], [hint]'))
    for (const name of ['aria-label', 'placeholder', 'title', 'hint'])
      if (one.getAttribute(name)) found.add(['label', one.getAttribute(name)]);
  return [...found];
}
"""
NAMES = frozenset(
    {
        "acl", "ascii", "bash", "bool", "broker", "brokers", "cancel", "cluster", "commitlog", "csv", "deny", "dlq",
        "duckdb", "english", "gb", "gbk", "group", "groups", "hex", "id", "ids", "info", "json", "key", "keys", "kv",
        "log", "master", "message", "messages", "min", "ms", "mqadmin", "namesrv", "nameserver", "none", "normal",
        "null", "ops", "order", "parquet", "pub", "python", "rocketmq", "select", "slave", "sql", "sub",
        "super", "tianzhou", "topic", "topics", "trace", "tls", "utc", "utf",
    }
)  # fmt: skip
"""Words that Chinese pages also contain: names, units, words of the protocol and of commands, in lower case."""
_CHINESE = re.compile(r"[\u3400-\u9fff]")
_QUOTED = re.compile(r"`[^`]*`|（原文：.*?）|原文：.*", re.DOTALL)
_WORD = re.compile(r"[A-Za-z]{2,}")
_SENTENCE = re.compile(r"[A-Za-z]+(?:[ ,;]+[a-z]+){2,}")
MORE_STOPS = 60
"""Number of tabulator stops beyond the actions, such as scrolled texts."""
STOPS_AT_ONCE = 10
"""Number of tabulator stops between two checks for unreached actions."""


def too_wide(page: Any, width: int) -> list[str]:
    """Return the elements beyond the right edge, when the page can be scrolled that way."""
    found: list[str] = page.evaluate(_TOO_WIDE, width)
    return found


def tables_cut(page: Any) -> list[str]:
    """Return the tables that are partly hidden, because they are wider than their container."""
    found: list[str] = page.evaluate(_TABLES_CUT)
    return found


def not_focused(page: Any) -> list[str]:
    """Return the actions of the mouse without a tabulator stop. No key is pressed."""
    page.evaluate(_MARK_ACTIONS)
    page.evaluate(_NOTE_STOPS)
    page.evaluate(_FOCUS_STOPS)
    return [*page.evaluate(_NOT_STOPPED).values()]


def not_reached(page: Any) -> list[str]:
    """Return the actions of the mouse that the tabulator does not reach."""
    page.evaluate(_MARK_ACTIONS)
    left = page.evaluate(_NOTE_STOPS)
    for stop in range(len(left) + MORE_STOPS):
        if stop % STOPS_AT_ONCE == 0 and not (left := page.evaluate(_NOT_STOPPED)):
            break
        page.keyboard.press("Tab")
    # Elements redrawn meanwhile have lost their mark.
    return [*page.evaluate(_NOT_STOPPED).values()]


def faint(page: Any) -> list[str]:
    """Return the texts with less contrast than WCAG 2.2 requires at level AA: 4.5, and 3 for large ones."""
    found: list[str] = page.evaluate(_FAINT)
    return found


def english(page: Any, names: Iterable[str]) -> list[str]:
    """Return the English texts on a Chinese page: labels without a Chinese word, and sentences outside of data.

    Args:
        page: the page.
        names: names of the cluster, which are never translated, beside `NAMES`.
    """
    found = []
    allowed = NAMES | {one.lower() for one in names}
    for kind, text in page.evaluate(_WORDS):
        rest = _QUOTED.sub("", text)
        for name in sorted(names, key=len, reverse=True):
            rest = rest.replace(name, "")
        if kind == "label" and not _CHINESE.search(rest):
            found += [text for word in _WORD.findall(rest) if word.lower() not in allowed][:1]
        elif kind == "text" and _SENTENCE.search(rest):
            found.append(text)
    return found
