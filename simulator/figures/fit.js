// Figures fit into their place, in reports and in the dashboard. On phones titles and long names get more lines, legends go
// below, scales of colours are thin: a figure is drawn as for a wide page first, and once more where it is narrow; its meta
// then says so. At any width what is drawn is measured, and gets the room that it lacks; panels side by side stand below
// each other where they lack it.
(() => {
    const NARROW_PX = 560, EDGE_PX = 8, LINE_PX = 18, NAME_PX = 150, ENTRY_PX = 20, AIR_PX = 4, MOST_TRIES = 8;
    const pen = document.createElement("canvas").getContext("2d");

    function textWidth(text, {size, family}) {
        pen.font = `${size}px ${family}`;
        return pen.measureText(text.replace(/<[^>]*>/g, "").trimEnd()).width;
    }

    // Text in lines that are no wider, broken at spaces, and words that are wider behind dots, underscores and slashes.
    function broken(text, room_px, font) {
        const parts = (word) => textWidth(word, font) <= room_px ? [word] : word.split(/(?<=[._])(?!\d)|(?<=[^<]\/)/);
        return String(text ?? "").split("<br>").flatMap((whole) => {
            const found = [""];
            for (const word of whole.split(/(?<= )/).flatMap(parts)) {
                const last = found.at(-1) + word;
                if (textWidth(last, font) <= room_px || found.at(-1) === "") found[found.length - 1] = last;
                else found.push(word);
            }
            return found;
        });
    }

    // The title in lines from the edge on, and how much is above the plot then: little where only the legend was.
    const BARE_PX = 24;
    function title({layout: {title}, _fullLayout: {title: look, margin, showlegend}}, width_px) {
        const room_px = width_px - 2 * EDGE_PX, {font, subtitle} = look;
        const head = title?.text ? broken(title.text, room_px, font) : [];
        const small = title?.subtitle?.text ? broken(title.subtitle.text, room_px, subtitle.font) : [];
        if (!head.length && !small.length) return [{}, showlegend ? Math.min(margin.t, BARE_PX) : margin.t];
        const changes = {"title.text": head.join("<br>"), "title.subtitle.text": small.join("<br>"), "title.x": 0,
            "title.xref": "container", "title.pad.l": EDGE_PX, "title.pad.t": 14 + 0.6 * font.size * Math.max(0, head.length - 1)};
        return [changes, 24 + LINE_PX * (1.4 * head.length + small.length)];
    }

    // The x or y axes of a figure's panels that are seen, by their names in the layout.
    const axesOf = ({_fullLayout}, letter) => Object.entries(_fullLayout)
        .filter(([name, axis]) => new RegExp(`^${letter}axis\\d*$`).test(name) && axis.visible && axis._length);

    function axes(drawn, width_px) {
        const across = axesOf(drawn, "x").map(([name, axis]) => acrossNarrow(name, drawn.layout[name], axis, width_px));
        return Object.assign({}, ...across, ...axesOf(drawn, "y").map(([name, axis]) => rowNames(name, axis, NAME_PX, 9)));
    }

    function acrossNarrow(name, {title} = {}, {title: {font}}, width_px) {
        const text = title?.text && {[`${name}.title.text`]: broken(title.text, width_px - NAME_PX, font).join("<br>")};
        return {[`${name}.nticks`]: 5, ...text};
    }

    // Ticks of numbers are fewer where they stand askew, as those do that have no room beside each other.
    function fewerTicks(drawn) {
        const hasMany = ([, {type, nticks, _vals}]) => type !== "category" && nticks !== 1 && _vals?.length > 2;
        const some = isAskew(drawn) ? axesOf(drawn, "x").filter(hasMany) : [];
        return Object.assign({}, ...some.map(([name, {tickmode, tickvals, ticktext, nticks, _vals}]) => tickmode === "array"
            ? {[`${name}.tickvals`]: everySecond(tickvals), [`${name}.ticktext`]: everySecond(ticktext)}
            : {[`${name}.nticks`]: Math.max(1, Math.min(_vals.length, nticks || Infinity) - 1)}));
    }

    const everySecond = (all) => all && [...all].filter((_, i) => i % 2 === 0);

    const isAskew = (drawn) => [...drawn.querySelectorAll(".xaxislayer-above text")]
        .some((one) => /rotate\((?!0)/.test(one.getAttribute("transform") ?? ""));

    // Names of rows in lines that are no wider, in letters of this size.
    function rowNames(name, {type, _categories, tickvals, ticktext, tickfont}, room_px, size) {
        const known = type === "category" ? [..._categories] : tickvals, texts = ticktext ?? known;
        if (!known || !texts) return {};
        const names = texts.map((text) => broken(String(text).replaceAll("<br>", ""), room_px, {...tickfont, size}).join("<br>"));
        return {[`${name}.tickvals`]: known, [`${name}.ticktext`]: names, [`${name}.tickfont.size`]: size};
    }

    // By how much rows of names in several lines must grow, so that no two meet.
    function growth({_fullLayout: {yaxis, height, margin}}, {"yaxis.ticktext": names, "yaxis.tickfont.size": size}) {
        const lines = Math.max(0, ...(names ?? []).map((name) => name.split("<br>").length));
        if (!lines || (yaxis.type !== "category" && lines < 2)) return 0;
        return Math.max(0, names.length * (1.3 * size * lines + 4) - (height - margin.t - margin.b));
    }

    // Titles of parts of a figure begin at its edge, in lines: else they would be cut.
    function partTitles({layout: {annotations = []}, _fullLayout: {_size, font}}, width_px) {
        const isTitle = ({xanchor, xref, showarrow}) => xanchor === "left" && xref === "paper" && !showarrow;
        const small = {...font, size: 11}, look = {xshift: EDGE_PX - _size.l, align: "left", font: {size: 11}};
        if (!annotations.some(isTitle)) return {};
        const inLines = (one) => ({...one, ...look, text: broken(one.text, width_px - 2 * EDGE_PX, small).join("<br>")});
        return {annotations: annotations.map((one) => isTitle(one) ? inLines(one) : one)};
    }

    // Names of a legend in lines, where they are wider than the figure; small text behind the ends of bars.
    const MARK_PX = 52;
    function traces({data, _fullLayout: {font}}, width_px) {
        const small = {...font, size: 11};
        return {
            name: data.map(({name}) => name && broken(name, width_px - MARK_PX, small).join("<br>")),
            "outsidetextfont.size": data.map(({textposition}) => textposition === "outside" ? 9 : undefined),
        };
    }

    // The scale of colours of a trace: what it is of stands in the choice above the figure, too.
    function scale(trace) {
        const at = ["marker.colorbar", "line.colorbar", "colorbar"].find((path) => path.split(".").reduce((one, key) => one?.[key], trace));
        return at && {[`${at}.thickness`]: 8, [`${at}.xpad`]: 2, [`${at}.tickfont.size`]: 9, [`${at}.title.text`]: ""};
    }

    // Plotly asks its parent for the height whenever the width changes; a width that is written down would never change.
    async function redraw(drawn, changes, traces = {}, which = undefined) {
        if (changes.height) drawn.parentElement.style.height = `${changes.height}px`;
        await window.Plotly.update(drawn, traces, changes, which);
        delete drawn.layout.width;
    }

    // Buttons go below what is wider than the screen, as they would hide its title.
    const MENU_PX = 44;
    function menusBelow(drawn) {
        const {layout: {updatemenus: menus, meta}, _fullLayout: {height, margin}} = drawn;
        if (!menus?.length || meta === "narrow" || window.innerWidth >= NARROW_PX) return {};
        const place = {x: 0, xanchor: "left", y: 0, yanchor: "top", pad: {t: MENU_PX}};
        return {
            meta: "narrow", height: height + MENU_PX, "margin.b": margin.b + MENU_PX,
            updatemenus: menus.map((one) => ({...one, ...place})),
        };
    }

    // Where all of a figure is on the screen, they have a row between its title and its plot; and how high that is.
    function menusAbove({layout: {updatemenus: menus}}) {
        const place = {x: 1, xanchor: "right", y: 1, yanchor: "bottom", pad: {b: EDGE_PX}};
        return menus?.length ? [{updatemenus: menus.map((one) => ({...one, ...place}))}, MENU_PX] : [{}, 0];
    }

    const box = (one) => one.getBoundingClientRect();

    // Panels side by side stand below each other where one is too narrow for its ticks, its title, or at all.
    const PANEL_PX = 300, PANEL_GAP_PX = 84;
    function panelsBelow(drawn) {
        const {layout: {annotations = [], legend}, _fullLayout: {height, margin}} = drawn, panels = panelsOf(drawn);
        if (new Set(panels.map(({xaxis}) => xaxis._offset)).size < 2 || !(isAskew(drawn) || isCrowded(drawn, panels))) return {};
        const [from, to] = panels[0].yaxis.domain, before_px = height - margin.t - margin.b, panel_px = (to - from) * before_px;
        const inside_px = panels.length * (panel_px + PANEL_GAP_PX) - PANEL_GAP_PX;
        const tops = panels.map((_, i) => 1 - i * (panel_px + PANEL_GAP_PX) / inside_px), titles = panels.map(({title}) => title);
        const domains = panels.map(({xaxis, yaxis}, i) => ({
            [`${xaxis._name}.domain`]: [0, 1], [`${yaxis._name}.domain`]: [Math.max(0, tops[i] - panel_px / inside_px), tops[i]],
        }));
        return Object.assign({
            height: height + inside_px - before_px,
            annotations: annotations.map((one) => titles.includes(one) ? {...one, x: 0, y: tops[titles.indexOf(one)]} : one),
            ...(legend && {"legend.y": 1 + (legend.y - 1) * before_px / inside_px}),
        }, ...domains);
    }

    // Pairs of axes, each with the annotation that begins at its upper left corner.
    function panelsOf({layout: {annotations = []}, _fullLayout: {_plots = {}}}) {
        return Object.values(_plots).filter(({xaxis}) => xaxis.visible).map(({xaxis, yaxis}) => ({xaxis, yaxis, title: annotations.find(
            ({xref, x, y}) => xref === "paper" && x === xaxis.domain[0] && Math.abs(y - yaxis.domain[1]) < 1e-6)}));
    }

    const isCrowded = ({_fullLayout: {font}}, panels) => panels.some(({xaxis, title}) =>
        xaxis._length < Math.max(PANEL_PX, title ? textWidth(title.text, {...font, ...title.font}) : 0));

    // Names of rows that take half of a figure get lines.
    const NAMES_SHARE = 0.45, LINE_SHARE = 0.42;
    function namesInLines(drawn) {
        const {clientWidth: width_px, _fullLayout: {yaxis, height, _size}} = drawn;
        if (_size.l <= NAMES_SHARE * width_px || axesOf(drawn, "y").length > 1) return {};
        const changes = rowNames("yaxis", yaxis, LINE_SHARE * width_px, yaxis.tickfont.size), names = changes["yaxis.ticktext"];
        const isNew = names?.some((name, i) => name !== (yaxis.ticktext ?? yaxis._categories)[i]);
        return isNew ? {...changes, height: height + growth(drawn, changes)} : {};
    }

    // Margins have room for what stands in them, and the figure is higher by that: else the plot is lower.
    function roomier({_fullLayout: {height, margin, _size}}) {
        const top_px = Math.ceil(_size.t - margin.t), bottom_px = Math.ceil(_size.b - margin.b);
        if (top_px + bottom_px < 2) return {};
        return {"margin.t": margin.t + top_px, "margin.b": margin.b + bottom_px, height: height + top_px + bottom_px};
    }

    const isCut = (drawn, of) => [...drawn.querySelectorAll(of)].map(box)
        .some(({left, right}) => right > box(drawn).right || left < box(drawn).left);

    // A title that is cut gets lines, and so do those of parts, if that changes them.
    function titleInLines(drawn) {
        const [changes] = isCut(drawn, ".gtitle, .gtitle-subtitle") ? title(drawn, drawn.clientWidth) : [{}], {title: now} = drawn.layout;
        const isNew = now?.text !== changes["title.text"] || now?.subtitle?.text !== changes["title.subtitle.text"] || now?.xref !== "container";
        return isNew ? changes : {};
    }

    function partsInLines(drawn) {
        const changes = isCut(drawn, ".annotation-text") ? partTitles(drawn, drawn.clientWidth) : {};
        const isNew = ({text, xshift}, i) => text !== drawn.layout.annotations[i].text || xshift !== drawn.layout.annotations[i].xshift;
        return changes.annotations?.some(isNew) ? changes : {};
    }

    // What is below the title, or the edge, moves down where it reaches into it: a legend has more rows where a page is narrow.
    function lower(drawn) {
        const {layout: {updatemenus: menus = []}, _fullLayout: {height, margin, _size}} = drawn;
        const plot = box(drawn).top + _size.t, boxes = (of) => [...drawn.querySelectorAll(of)].map(box).filter(({height}) => height);
        const above = boxes(".gtitle, .gtitle-subtitle, .updatemenu-button").map(({bottom}) => bottom).filter((bottom) => bottom < plot);
        const below = boxes(".legend .bg, .annotation-text").map(({top}) => top);
        const more_px = Math.ceil(AIR_PX + Math.max(box(drawn).top, ...above) - Math.min(plot, ...below));
        if (more_px <= 0) return {};
        const raised = menus.map((one) => one.y === 1 ? {...one, pad: {...one.pad, b: one.pad.b + more_px}} : one);
        return {"margin.t": margin.t + more_px, height: height + more_px, ...(menus.length && {updatemenus: raised})};
    }

    // What is drawn is as high as before, whatever the legend below it takes.
    function asHigh({_fullLayout: {height, _size}}, inside_px) {
        const more_px = Math.ceil(inside_px - _size.h);
        return Math.abs(more_px) > 1 ? {height: height + more_px} : {};
    }

    // An axis reaches further where texts behind the ends of bars are cut, or lie on the names of rows.
    function further(drawn) {
        const {_fullLayout: {_size, xaxis}} = drawn, all = box(drawn), texts = [...drawn.querySelectorAll(".bartext-outside")].map(box);
        if (!texts.length || !xaxis?.range) return {};
        const [from, to] = xaxis.range, left = from < 0 ? all.left + _size.l : all.left;
        const lack_px = Math.max(...texts.map((one) => Math.max(left - one.left, one.right - all.right + 2)));
        const more = (to - from) * 2 * Math.max(lack_px, 2) / _size.w;
        return lack_px > 0 ? {"xaxis.range": [from < 0 ? from - more : from, to + more]} : {};
    }

    function settle(drawn, inside_px, tries = MOST_TRIES) {
        if (!tries || !drawn.isConnected) return;
        const changes = firstOf([asHigh(drawn, inside_px), partsInLines(drawn), lower(drawn), further(drawn), fewerTicks(drawn)]);
        if (changes) redraw(drawn, changes).then(() => settle(drawn, inside_px, tries - 1));
    }

    // The names of parallel axes have lines as wide as the axes are apart.
    const PARALLEL_LINE_PX = 14;
    function parallelNames(drawn) {
        const {data: [first], _fullLayout: {_size, height, margin}} = drawn, axes = first?.type === "parcoords" ? first.dimensions : [];
        if (axes.length < 2) return;
        const font = drawn._fullData[0].labelfont, room_px = _size.w / (axes.length - 1) - EDGE_PX;
        const labels = axes.map(({label}) => broken(label.replaceAll("<br>", ""), room_px, font).join("<br>"));
        if (labels.every((label, i) => label === axes[i].label)) return;
        const lines = (texts) => Math.max(...texts.map((text) => text.split("<br>").length));
        const more_px = PARALLEL_LINE_PX * (lines(labels) - lines(axes.map(({label}) => label)));
        const named = axes.map((one, i) => ({...one, label: labels[i]}));
        redraw(drawn, {"margin.t": margin.t + more_px, height: height + more_px}, {dimensions: [named]}, [0]);
    }

    const BELOW = {orientation: "h", x: 0, xref: "container", xanchor: "left", y: 0, yref: "container", yanchor: "bottom",
        maxheight: 1, font: {size: 11}};

    async function fitNarrow(drawn, width_px) {
        const {data, layout, _fullLayout: {height, margin}} = drawn;
        const [titled, title_px] = title(drawn, width_px), named = axes(drawn, width_px), [menus, menus_px] = menusAbove(drawn);
        const inside_px = height - margin.t - margin.b + growth(drawn, named), top_px = title_px + menus_px;
        const height_px = inside_px + top_px + margin.b + ENTRY_PX * data.length; // a legend has room at first, however long
        const changes = {
            ...titled, ...named, ...menus, ...partTitles(drawn, width_px), "margin.t": top_px, "margin.r": 12,
            height: height_px, legend: {...layout.legend, ...BELOW},
        };
        const scaled = data.findIndex(scale);
        layout.meta = "narrow";
        if (scaled >= 0) await window.Plotly.restyle(drawn, scale(data[scaled]), [scaled]);
        await redraw(drawn, changes, traces(drawn, width_px));
        settle(drawn, inside_px);
    }

    const reached = new WeakMap(); // for which width the axis of these data reaches far enough: then it is the reader's
    const firstOf = (found) => found.find((one) => Object.keys(one).length);

    function fit(drawn) {
        const {data, layout, clientWidth: width_px, _fullLayout} = drawn;
        if (!width_px || !_fullLayout._size) return; // hidden, or not drawn yet
        if (width_px < NARROW_PX && layout.meta === "narrow") return parallelNames(drawn);
        drawn.parentElement.style.height = `${_fullLayout.height}px`;
        const stacked = panelsBelow(drawn);
        if (Object.keys(stacked).length) return redraw(drawn, stacked);
        if (width_px < NARROW_PX) return fitNarrow(drawn, width_px);
        const reaching = reached.get(data) === width_px ? [] : [further];
        const steps = [menusBelow, titleInLines, partsInLines, namesInLines, roomier, lower, ...reaching, fewerTicks];
        const changes = firstOf(steps.map((one) => one(drawn)));
        if (changes) return redraw(drawn, changes);
        reached.set(data, width_px);
        parallelNames(drawn);
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
