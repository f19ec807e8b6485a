// What is wrong with texts of figures: one is cut at the figure's edge or by its legend, lies on another, or stands upright
// below an axis; a legend or the title of an axis lies on a plot. Boxes of letters are larger than the letters: a little of them may overlap.
(() => {
    const LITTLE_PX = 3;
    const isRead = (one) => one.textContent.trim() && one.checkVisibility({opacityProperty: true, visibilityProperty: true})
        && parseFloat(getComputedStyle(one).fontSize) > 2 && !one.closest(".hoverlayer, [clip-path] .barlayer"); // cut as one zooms
    const lines = (text) => {
        const parts = [...text.querySelectorAll("tspan.line")].filter((one) => one.textContent.trim());
        return (parts.length ? parts : [text]).map((one) => ({said: one.textContent.trim(), box: one.getBoundingClientRect()}));
    };
    const isOutside = ({box}, place) => box.left < place.left - LITTLE_PX || box.right > place.right + LITTLE_PX
        || box.top < place.top - LITTLE_PX || box.bottom > place.bottom + LITTLE_PX;
    const meet = ({box: one}, {box: other}) => Math.min(one.right, other.right) - Math.max(one.left, other.left) > LITTLE_PX
        && Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > LITTLE_PX;
    const isUpright = (tick) => /rotate\((?!0)/.test(tick.getAttribute("transform") ?? "");

    return [...document.querySelectorAll(".js-plotly-plot")].filter((drawn) => drawn.clientWidth).flatMap((drawn) => {
        const texts = [...drawn.querySelectorAll(".main-svg text")].filter(isRead), all = texts.flatMap(lines);
        const legends = [...drawn.querySelectorAll(".legend")];
        const cut = [[drawn, all], ...legends.map((one) => [one.querySelector(".bg"), [...one.querySelectorAll("text")].flatMap(lines)])]
            .flatMap(([place, some]) => some.filter((one) => isOutside(one, place.getBoundingClientRect())))
            .map(({said}) => `cut: ${said}`);
        const over = all.flatMap((one, i) => all.slice(i + 1).filter((other) => meet(one, other)).map(({said}) => `${one.said} over ${said}`));
        const upright = [...drawn.querySelectorAll(".xaxislayer-above text")].filter(isUpright).map((tick) => `upright: ${tick.textContent}`);
        const at = drawn.getBoundingClientRect(), plots = Object.values(drawn._fullLayout._plots ?? {}).map(({xaxis, yaxis}) => ({
            left: at.left + xaxis._offset, right: at.left + xaxis._offset + xaxis._length,
            top: at.top + yaxis._offset, bottom: at.top + yaxis._offset + yaxis._length,
        }));
        const besides = [...drawn.querySelectorAll(".legend, .infolayer > [class$=title]:not(.gtitle)")].filter((one) => one.checkVisibility());
        const onPlot = besides.filter((one) => plots.some((box) => meet({box: one.getBoundingClientRect()}, {box})))
            .map(({textContent}) => `on a plot: ${textContent}`);
        return [...cut, ...over, ...upright, ...onPlot].map((fault) => `${drawn.closest("[aria-label]")?.ariaLabel}: ${fault}`);
    });
})()
