// Figures on phones: titles and long names of rows get more lines, legends go below, scales of colours are thin. A figure
// is drawn as for a wide page first, and once more where it is narrow; its meta then says so.
(() => {
    const NARROW_PX = 560, LINE_PX = 18, NAME_LINE_PX = 12, LETTER_PX = 6.6, SMALL_PX = 6, ENTRY_PX = 62, NAME = 28;

    // Text in lines of so many letters, broken at spaces, or behind dots and underscores of what has none.
    function broken(text, most) {
        const found = [""];
        const whole = String(text ?? "");
        for (const word of whole.split(whole.includes(" ") ? /(?<= )/ : /(?<=[._])/)) {
            const last = found.at(-1) + word;
            if (last.trimEnd().replace(/<[^>]*>/g, "").length <= most || found.at(-1) === "") found[found.length - 1] = last;
            else found.push(word);
        }
        return found;
    }

    function title({title}, width_px) {
        const most = Math.floor(width_px / LETTER_PX), head = title?.text ? broken(title.text, Math.floor(0.7 * most)) : [];
        const small = (title?.subtitle?.text || "").split("<br>").filter(Boolean).flatMap((line) => broken(line, most));
        const changes = {"title.text": head.join("<br>"), "title.subtitle.text": small.join("<br>"),
            "title.x": 0, "title.xref": "container", "title.pad.l": 8};
        return [head.length || small.length ? changes : {}, 1.4 * head.length + small.length];
    }

    // How many rows the entries of a legend take: all are as wide as the widest.
    function legendRows({data, _fullLayout: {showlegend}}, width_px) {
        const named = data.filter((one) => showlegend && one.name && one.showlegend !== false);
        const widest_px = ENTRY_PX + LETTER_PX * Math.max(0, ...named.map(({name}) => name.length));
        return Math.ceil(named.length / Math.max(1, Math.floor(width_px / widest_px)));
    }

    function axes({data, layout: {xaxis}, _fullLayout: {yaxis}}) {
        const known = yaxis?.type === "category" ? [...yaxis._categories] : yaxis?.tickvals, texts = yaxis?.ticktext ?? known;
        const changes = {"xaxis.nticks": 5};
        if (xaxis?.title?.text) changes["xaxis.title.text"] = broken(xaxis.title.text, NAME).join("<br>");
        if (known && texts) {
            const names = texts.map((name) => broken(name, NAME).join("<br>"));
            Object.assign(changes, {"yaxis.tickvals": known, "yaxis.ticktext": names, "yaxis.tickfont.size": 9});
        }
        if (xaxis?.range && data.some(({textposition}) => textposition === "outside")) { // texts keep their length
            const [from, to] = xaxis.range, more = 0.4 * (to - Math.max(from, 0));
            changes["xaxis.range"] = [from < 0 ? from - more : from, to + more];
        }
        return changes;
    }

    // By how much rows of names in several lines must grow, so that no two meet.
    function growth({_fullLayout: {yaxis, height, margin}}, {"yaxis.ticktext": names}) {
        if (!names?.length || yaxis.type !== "category") return 0;
        const lines = Math.max(...names.map((name) => name.split("<br>").length));
        return Math.max(0, names.length * (NAME_LINE_PX * lines + 4) - (height - margin.t - margin.b));
    }

    // Titles of parts of a figure begin at its edge, in lines: else they would be cut.
    function partTitles({layout: {annotations = []}, _fullLayout: {_size}}, width_px) {
        const isTitle = ({xanchor, showarrow}) => xanchor === "left" && !showarrow;
        const most = Math.floor((width_px - 16) / SMALL_PX), look = {xshift: 8 - _size.l, align: "left", font: {size: 11}};
        if (!annotations.some(isTitle)) return {};
        const inLines = (one) => ({...one, ...look, text: broken(one.text, most).join("<br>")});
        return {annotations: annotations.map((one) => isTitle(one) ? inLines(one) : one)};
    }

    // Buttons go below what is wider than the screen, as they would hide its title.
    const MENU_PX = 44;
    function menusBelow(drawn) {
        const {layout: {updatemenus: menus, meta}, _fullLayout: {height, margin}} = drawn;
        if (!menus?.length || meta === "narrow" || window.innerWidth >= NARROW_PX) return;
        const place = {x: 0, xanchor: "left", y: 0, yanchor: "top", pad: {t: MENU_PX}};
        drawn.parentElement.style.height = `${height + MENU_PX}px`;
        window.Plotly.relayout(drawn, {
            meta: "narrow", height: height + MENU_PX, "margin.b": margin.b + MENU_PX,
            updatemenus: menus.map((one) => ({...one, ...place})),
        });
    }

    // The scale of colours of a trace: what it is of stands in the choice above the figure, too.
    function scale(trace) {
        const at = trace.marker?.colorbar ? "marker.colorbar" : trace.line?.colorbar ? "line.colorbar" : "colorbar";
        return {[`${at}.thickness`]: 8, [`${at}.xpad`]: 2, [`${at}.tickfont.size`]: 9, [`${at}.title.text`]: ""};
    }

    const BELOW = {orientation: "h", x: 0, xref: "container", xanchor: "left", y: 0, yref: "container", yanchor: "bottom"};

    function fit(drawn) {
        const {layout, clientWidth: width_px, _fullLayout: {height, margin}} = drawn;
        if (!width_px || layout.meta === "narrow") return;
        drawn.parentElement.style.height = "100%"; // of what was drawn before
        if (width_px >= NARROW_PX) return menusBelow(drawn);
        const [titled, lines] = title(layout, width_px), rows = legendRows(drawn, width_px);
        const scaled = drawn.data.findIndex((one) => one.marker?.colorbar || one.line?.colorbar || one.colorbar);
        const parts = partTitles(drawn, width_px), top_px = 24 + LINE_PX * (lines + !!parts.annotations);
        const bottom_px = margin.b + (LINE_PX + 2) * rows;
        const named = axes(drawn), inside_px = height - margin.t - margin.b + growth(drawn, named);
        const height_px = inside_px + top_px + bottom_px; // what is drawn stays as high, or grows
        drawn.parentElement.style.height = `${height_px}px`; // plotly asks for it whenever the width changes
        const changes = {
            ...titled, ...named, ...parts, meta: "narrow", "margin.t": top_px, "margin.b": bottom_px, "margin.r": 12,
            height: height_px,
            ...(rows && {legend: {...layout.legend, ...BELOW, font: {size: 11}}}),
        };
        if (scaled < 0) window.Plotly.relayout(drawn, changes);
        else window.Plotly.update(drawn, scale(drawn.data[scaled]), changes, [scaled]);
    }

    const known = new WeakSet();
    new MutationObserver(() => {
        for (const drawn of document.querySelectorAll(".js-plotly-plot")) {
            if (known.has(drawn) || !drawn.on || !drawn._fullLayout) continue;
            known.add(drawn);
            drawn.on("plotly_afterplot", () => fit(drawn));
            fit(drawn);
        }
    }).observe(document, {childList: true, subtree: true});
})();
