/* Head and foot of a page, which is one file: style and script stand in it, nothing is loaded. It
 * is light or dark as the reader's system is, or by its button; drawings move with the mouse.
 *
 *     page_head(out, "why.c"); ...; page_foot(out);   ->   <!doctype html> ... </html> */
#include "report/page.h"

#include <string.h>

/* What may load what: nothing but itself. */
#define POLICY "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"

static const char style[] =
    ":root{--bg:#fff;--fg:#1b1f24;--dim:#59636e;--line:#d5dae0;--soft:#f4f6f8;--link:#0550ae;"
    "--kernel:#e6f0fd;--kernel-line:#6ea3e6;--task:#fdeedd;--task-line:#dd9c50;--node:#fff;"
    "--free:#eef1f4;--heat:#d1242f;--time:#d9822b;--roof:#2f855a;--warn:#9a5b00}"
    "@media(prefers-color-scheme:dark){:root:not(.light){DARK}}:root.dark{DARK}"
    "*{box-sizing:border-box}body{margin:0 auto;max-width:1240px;padding:24px;color:var(--fg);"
    "background:var(--bg);font:15px/1.5 system-ui,sans-serif}"
    "h1{font-size:26px;margin:0}h2{font-size:21px;margin:44px 0 4px;padding-top:16px;"
    "border-top:1px solid var(--line)}h3{font-size:17px;margin:28px 0 4px}"
    "h4{font-size:15px;margin:20px 0 6px}p{margin:6px 0}.note,.dim{color:var(--dim)}"
    ".note{font-size:13px}a{color:var(--link);text-decoration:none}a:hover{text-decoration:"
    "underline}"
    "code,pre,.code{font:12.5px/1.45 ui-monospace,'DejaVu Sans Mono',monospace}"
    "pre{background:var(--soft);border:1px solid var(--line);border-radius:6px;padding:10px;"
    "overflow:auto;max-height:480px;margin:6px 0}"
    "table{border-collapse:collapse;width:100%;font-size:13.5px}.wide{overflow-x:auto}"
    "th{font-weight:600;text-align:left;color:var(--dim);border-bottom:1px solid var(--line);"
    "padding:4px 10px 4px 0;white-space:nowrap}"
    "th.number{text-align:right}td{border-bottom:1px solid var(--line);padding:4px 10px 4px "
    "0;vertical-align:top}"
    "td.number{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}"
    "tr:target td{background:var(--task)}.bar{height:3px;width:80px;background:var(--line);"
    "border-radius:2px;margin:2px 0 0 auto}.bar div{height:3px;border-radius:2px;"
    "background:var(--time)}.bar.roof div{background:var(--roof)}"
    ".cards{display:flex;flex-wrap:wrap;gap:8px;margin:16px 0}.card{border:1px solid var(--line);"
    "border-radius:8px;padding:8px 14px;background:var(--soft);min-width:88px}"
    ".card b{display:block;font-size:19px;line-height:1.3;font-variant-numeric:tabular-nums}"
    ".card span{color:var(--dim);font-size:13px}"
    ".reason{border-left:3px solid var(--warn);padding:2px 0 2px 12px;margin:8px 0}"
    ".kind{display:inline-block;font-size:12px;font-weight:600;color:var(--warn);margin-right:8px;"
    "text-transform:uppercase;letter-spacing:.04em}"
    "details{margin:4px 0}summary{cursor:pointer}ul{margin:4px 0;padding-left:24px}"
    "button{font:13px system-ui,sans-serif;color:var(--fg);background:var(--soft);cursor:pointer;"
    "border:1px solid var(--line);border-radius:6px;padding:3px 10px}"
    "header{display:flex;justify-content:space-between;align-items:flex-start;gap:16px}"
    ".stage{position:relative;border:1px solid var(--line);border-radius:8px;overflow:auto;"
    "max-height:70vh;margin:10px 0;background:var(--bg)}"
    ".stage.live{overflow:hidden;height:70vh;cursor:grab;touch-action:none}"
    ".tools{position:absolute;top:8px;right:8px;display:flex;gap:6px}"
    "svg{display:block;font:12px system-ui,sans-serif}svg text{fill:var(--fg)}"
    "svg .meta{fill:var(--dim);font-size:10.5px}svg .name{font-weight:600}"
    ".box rect{fill:var(--kernel);stroke:var(--kernel-line)}"
    ".box.task rect{fill:var(--task);stroke:var(--task-line)}"
    ".box rect.heat{fill:var(--heat);stroke:none}"
    ".node rect{fill:var(--node);stroke:var(--line)}.node.view rect{fill:var(--free);"
    "stroke-dasharray:3 2}.node text,.pill text{text-anchor:middle}"
    ".pill rect{fill:var(--soft);stroke:var(--dim)}.edges path{fill:none;stroke:var(--dim);"
    "stroke-width:1.2;opacity:.55}.title text{paint-order:stroke;stroke-width:4px;"
    "stroke:var(--kernel);stroke-linejoin:round}.title.task text{stroke:var(--task)}";

static const char dark[] =
    "--bg:#101418;--fg:#e4e8ec;--dim:#98a3ae;--line:#313942;--soft:#181e24;--link:#79b8ff;"
    "--kernel:#14283f;--kernel-line:#3d77b8;--task:#37260f;--task-line:#a8742f;--node:#1d242b;"
    "--free:#151a20;--heat:#f0605a;--time:#e39b4b;--roof:#4fb383;--warn:#e0a84a";

/* A drawing lies on its stage by scale and place: the wheel scales, dragging moves. */
static const char script[] =
    "document.getElementById('theme').onclick=()=>{const r=document.documentElement,"
    "d=r.classList.contains('dark')||(!r.classList.contains('light')&&"
    "matchMedia('(prefers-color-scheme:dark)').matches);"
    "r.className=d?'light':'dark'};"
    "for(const stage of document.querySelectorAll('.stage')){"
    "const svg=stage.querySelector('svg'),w=+svg.getAttribute('width'),"
    "h=+svg.getAttribute('height');let s=1,x=0,y=0;"
    "const show=()=>{svg.style.transformOrigin='0 0';"
    "svg.style.transform=`translate(${x}px,${y}px) scale(${s})`};"
    "const width=()=>stage.clientWidth||Math.min(1190,innerWidth-50);"
    "const home=()=>{s=Math.min(1,Math.max(.55,width()/w));x=Math.max(0,(width()-w*s)/2);y=0;"
    "show()};"
    "const fit=()=>{s=Math.min(1,width()/w,stage.clientHeight/h);x=(width()-w*s)/2;y=0;show()};"
    "const zoom=(f,cx,cy)=>{const t=Math.min(4,Math.max(.02,s*f));x=cx-(cx-x)*t/s;"
    "y=cy-(cy-y)*t/s;s=t;show()};"
    "stage.classList.add('live');stage.style.height=Math.min(h+4,innerHeight*.7)+'px';"
    "stage.addEventListener('wheel',e=>{e.preventDefault();"
    "const b=stage.getBoundingClientRect();"
    "zoom(Math.exp(-e.deltaY*.0015),e.clientX-b.left,e.clientY-b.top)},{passive:false});"
    "let from=null,moved=false;"
    "stage.addEventListener('pointerdown',e=>{from=[e.clientX-x,e.clientY-y];moved=false});"
    "addEventListener('pointermove',e=>{if(!from)return;const nx=e.clientX-from[0],"
    "ny=e.clientY-from[1];if(Math.abs(nx-x)+Math.abs(ny-y)>3)moved=true;"
    "if(moved){x=nx;y=ny;show()}});"
    "addEventListener('pointerup',()=>{from=null});"
    "stage.addEventListener('click',e=>{if(moved)e.preventDefault()},true);"
    "stage.addEventListener('dragstart',e=>e.preventDefault());"
    "const tools=document.createElement('div');tools.className='tools';"
    "const mid=()=>[width()/2,stage.clientHeight/2];"
    "for(const[t,f]of[['\\u2212',()=>zoom(.8,...mid())],['+',()=>zoom(1.25,...mid())],"
    "['Fit',fit],['1:1',home]]){const b=document.createElement('button');b.textContent=t;"
    "b.onclick=f;b.onpointerdown=e=>e.stopPropagation();tools.append(b)}"
    "stage.append(tools);home()}"
    "const open=()=>{const t=location.hash&&document.getElementById(location.hash.slice(1));"
    "for(let e=t;e;e=e.parentElement)if(e.tagName==='DETAILS')e.open=true;"
    "if(t)t.scrollIntoView({block:'center'})};"
    "addEventListener('hashchange',open);open();document.body.dataset.ready='1';";

void page_text(Buffer *out, const char *text) {
    for (; *text; text++) {
        size_t plain = strcspn(text, "&<>\"'");
        put_bytes(out, text, plain);
        text += plain;
        if (!*text) return;
        putf(out, "&#%d;", *text);
    }
}

void page_fold(Buffer *out, const char *name, const char *text) {
    put(out, "<details><summary>");
    page_text(out, name);
    put(out, "</summary><pre>");
    page_text(out, text);
    put(out, "</pre></details>\n");
}

static void put_style(Buffer *out) {
    const char *at = style;
    put(out, "<style>\n");
    for (const char *word; (word = strstr(at, "DARK")); at = word + strlen("DARK")) {
        put_bytes(out, at, (size_t)(word - at));
        put(out, dark);
    }
    putf(out, "%s\n</style>\n", at);
}

void page_head(Buffer *out, const char *title) {
    put(out, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
             "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
             "<meta name=\"color-scheme\" content=\"light dark\">\n"
             "<meta http-equiv=\"Content-Security-Policy\" content=\"" POLICY "\">\n<title>");
    page_text(out, title);
    put(out, "</title>\n");
    put_style(out);
    put(out, "</head><body>\n<header><h1>");
    page_text(out, title);
    put(out, "</h1><button id=\"theme\">light / dark</button></header>\n");
}

void page_foot(Buffer *out) { putf(out, "<script>\n%s\n</script>\n</body></html>\n", script); }
