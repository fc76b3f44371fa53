
// Sorts and filters the table of records, and shows the words of the mark that is pointed at or has the focus.
{
  const all = (root, what) => Array.from(root.querySelectorAll(what));

  const keyOf = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.v === undefined ? cell.textContent.trim() : Number(cell.dataset.v);
  };
  const compare = (a, b) => (typeof a === "number" ? a - b : compareText(a, b));

  for (const table of all(document, "table.sortable")) {
    const body = table.tBodies[0];
    const heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const descending = head.getAttribute("aria-sort") === "ascending";
        const rows = Array.from(body.rows, (row) => [keyOf(row, column), row]);
        rows.sort((a, b) => (descending ? compare(b[0], a[0]) : compare(a[0], b[0])));
        heads.forEach((each) => each.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", descending ? "descending" : "ascending");
        body.append(...rows.map((pair) => pair[1]));
      });
    });
  }

  for (const form of all(document, "form.controls")) {
    const rows = Array.from(document.getElementById(form.dataset.for).tBodies[0].rows);
    const texts = rows.map((row) => Array.from(row.cells, (cell) => cell.textContent.toLowerCase()).join(" "));
    const search = form.querySelector("input");
    const choices = all(form, "select");
    const output = form.querySelector("output");
    const filter = () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach((row, i) => {
        const fits = words.every((word) => texts[i].includes(word)) &&
          choices.every((choice) => choice.value === "" || row.cells[choice.dataset.column].textContent.trim() === choice.value);
        row.hidden = !fits;
        shown += fits ? 1 : 0;
      });
      output.textContent = `${shown} of ${rows.length} records`;
    };
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", filter);
    filter();
  }

  for (const figure of all(document, "figure")) {
    const marks = all(figure, ".chart .mark");
    const readout = figure.querySelector(".readout");
    if (marks.length === 0 || readout === null) continue;
    const hint = "Point at a mark, tap it, or use the arrow keys.";
    const show = (mark) => { readout.textContent = mark.querySelector("title").textContent; };
    let current = 0;
    const moveTo = (index) => {
      marks[current].tabIndex = -1;
      current = Math.max(0, Math.min(marks.length - 1, index));
      marks[current].tabIndex = 0;
    };
    readout.textContent = hint;
    moveTo(0);
    marks.forEach((mark, index) => {
      mark.addEventListener("pointerenter", () => show(mark));
      mark.addEventListener("click", () => { moveTo(index); show(mark); });
      mark.addEventListener("focus", () => { moveTo(index); show(mark); });
    });
    figure.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
      if (step === undefined || !marks.includes(event.target)) return;
      event.preventDefault();
      moveTo(current + step);
      marks[current].focus();
    });
  }
}
