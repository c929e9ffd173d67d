// Tables sort by a click on a heading: up, down, then back to forward order.
(() => {
  "use strict";
  const order = { none: "ascending", ascending: "descending", descending: "none" };
  const words = new Intl.Collator("en", { numeric: true });

  const key = (row, column) => {
    const cell = row.cells[column];
    const text = cell.dataset.value ?? cell.textContent;
    return { text, number: Number(text.replace("−", "-")), unknown: cell.textContent === "–" };
  };

  const compare = (a, b) =>
    Number.isNaN(a.number) || Number.isNaN(b.number)
      ? words.compare(a.text, b.text)
      : a.number - b.number;

  const sort = (table, column, direction) => {
    const body = table.tBodies[0];
    const sign = direction === "descending" ? -1 : 1;
    const by = direction === "none" ? 0 : column; // column 0 holds the forward order
    const rows = [...body.rows].map((row) => ({ row, key: key(row, by) }));
    rows.sort((a, b) => a.key.unknown - b.key.unknown || sign * compare(a.key, b.key));
    body.append(...rows.map(({ row }) => row));
  };

  for (const table of document.querySelectorAll("table.sortable")) {
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      heading.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const next = order[heading.getAttribute("aria-sort")];
        for (const other of headings) other.setAttribute("aria-sort", "none");
        heading.setAttribute("aria-sort", next);
        sort(table, column, next);
      });
    });
  }
})();
