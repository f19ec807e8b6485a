// A button with data-save (png or svg) saves the figure of its section under data-name.
document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-save]");
    const drawn = button?.closest("section")?.querySelector(".js-plotly-plot");
    if (!drawn) return;
    const format = button.dataset.save, png = format === "png";
    const {width, height} = drawn.getBoundingClientRect();
    const filename = button.dataset.name.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
    window.Plotly.downloadImage(drawn, {format, filename, width, height, ...(png && {scale: 2, setBackground: "white"})});
});
