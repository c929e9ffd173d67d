// Surfaces turn when they are dragged, or by the arrow keys; all on the page turn together.
(() => {
  "use strict";
  const HEIGHT = 0.75; // of the scale's end, in sides of the square; as in the still figure
  const view = { turn: (-58 * Math.PI) / 180, rise: (38 * Math.PI) / 180 };
  const canvases = [...document.querySelectorAll("canvas[data-surface]")];

  // Where a point of the cube [-1, 1] x [-1, 1] x [0, 1] stands, and how near it is.
  const seen = (x, y, z) => {
    const [ct, st, cr, sr] = [Math.cos(view.turn), Math.sin(view.turn), Math.cos(view.rise), Math.sin(view.rise)];
    const back = st * x + ct * y;
    const height = 2 * HEIGHT * (z - 0.5);
    return { x: ct * x - st * y, y: cr * height + sr * back, near: sr * height - cr * back };
  };

  const path = (context, points, scale, middle) => {
    context.beginPath();
    points.forEach((p, i) => {
      const at = [middle.x + scale * p.x, middle.y - scale * p.y];
      if (i) context.lineTo(...at);
      else context.moveTo(...at);
    });
  };

  const draw = (canvas) => {
    const surface = canvas.surface;
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    const scale = Math.min(width / 3.3, height / 3.1);
    const middle = { x: width / 2, y: height / 2 };
    const rows = surface.height.length;
    const columns = surface.height[0].length;
    const along = (i, n) => (2 * i) / (n - 1) - 1;

    const floor = [[-1, -1], [1, -1], [1, 1], [-1, 1], [-1, -1]].map(([x, y]) => seen(x, y, 0));
    context.strokeStyle = "#9C9C9C";
    context.lineWidth = 1;
    path(context, floor, scale, middle);
    context.stroke();
    context.fillStyle = "#6B6B6B";
    context.font = "12px system-ui, sans-serif";
    context.textAlign = "center";
    for (const [name, x, y] of [[surface.axes[0], 0, -1.2], [surface.axes[1], 1.2, 0]]) {
      const at = seen(x, y, 0);
      context.fillText(name, middle.x + scale * at.x, middle.y - scale * at.y);
    }

    if (surface.chance) {
      const ring = [[-1, -1], [1, -1], [1, 1], [-1, 1], [-1, -1]].map(([x, y]) => seen(x, y, surface.chance.height));
      context.setLineDash([5, 3]);
      context.strokeStyle = "#262626";
      path(context, ring, scale, middle);
      context.stroke();
      context.setLineDash([]);
      context.fillStyle = "#262626";
      const at = ring.reduce((left, p) => (p.x < left.x ? p : left));
      context.textAlign = "left";
      context.fillText(surface.chance.label, middle.x + scale * at.x, middle.y - scale * at.y - 5);
    }

    const corners = surface.height.map((row, j) => row.map((z, i) => seen(along(i, columns), along(j, rows), z)));
    const cells = [];
    for (let j = 0; j + 1 < rows; j += 1) {
      for (let i = 0; i + 1 < columns; i += 1) {
        const points = [corners[j][i], corners[j][i + 1], corners[j + 1][i + 1], corners[j + 1][i]];
        cells.push({ points, colour: surface.colour[j][i], near: points.reduce((sum, p) => sum + p.near, 0) });
      }
    }
    cells.sort((a, b) => a.near - b.near); // far ones first
    context.lineWidth = 0.5;
    context.strokeStyle = "rgba(0, 0, 0, 0.35)";
    for (const cell of cells) {
      path(context, cell.points, scale, middle);
      context.closePath();
      context.fillStyle = cell.colour;
      context.fill();
      context.stroke();
    }
  };

  const turn = (across, up) => {
    view.turn += across;
    view.rise = Math.max(0.05, Math.min(Math.PI / 2, view.rise + up));
    canvases.forEach(draw);
  };

  for (const canvas of canvases) {
    canvas.surface = JSON.parse(canvas.dataset.surface);
    canvas.addEventListener("pointerdown", (event) => canvas.setPointerCapture(event.pointerId));
    canvas.addEventListener("pointermove", (event) => {
      if (canvas.hasPointerCapture(event.pointerId)) turn(event.movementX / 150, event.movementY / 150);
    });
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] }[event.key];
      if (!step) return;
      event.preventDefault();
      turn(...step);
    });
  }
  const all = () => canvases.forEach(draw);
  window.addEventListener("resize", all);
  all();
})();
