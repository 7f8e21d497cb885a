/** The parts of a saved page. No part contains text from a caller. */
type SavedParts = {
  /** The content security policy, with the hashes of script and style. */
  readonly policy: string
  /** Data URL. */
  readonly icon: string
  readonly script: string
  readonly style: string
}

/**
 * Writes the HTML of a verifier: one file that checks evidence and needs no other files. The parts
 * come from the gateway's bundled files, or from a saved page. evidence-page.ts adds the evidence.
 * Throws TypeError for a part that would end its place in the HTML, or that a browser would change.
 */
export function writeVerifier(parts: SavedParts): string {
  if (!hasFittingParts(parts)) throw new TypeError('expected parts that a page can hold unchanged')
  return fillFrame(parts)
}

/**
 * True if attacker-controlled `html` is what `writeVerifier` returns for some parts. A browser then
 * reads the elements of this file and no others.
 */
export function isVerifier(html: string): boolean {
  const texts: string[] = []
  let at = 0
  for (const [index, before] of FRAME.entries()) {
    const found =
      index === FRAME.length - 1 ? html.length - before.length : html.indexOf(before, at)
    if (found < at || !html.startsWith(before, found) || (index === 0 && found > 0)) return false
    texts.push(html.slice(at, found))
    at = found + before.length
  }
  const [, policy = '', icon = '', style = '', script = ''] = texts
  return hasFittingParts({ policy, icon, style, script })
}

function hasFittingParts({ policy, icon, script, style }: SavedParts): boolean {
  return (
    !/["&<>\r\0]/.test(policy + icon) &&
    !/<\/style|[\r\0]/i.test(style) &&
    // The bundled script contains this line, so it must not match itself.
    !/<\/script|<!-{2}|[\r\0]/i.test(script)
  )
}

function fillFrame({ policy, icon, script, style }: SavedParts): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="content-security-policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<meta name="affidavit-copy" content="verify">
<title>Verify · Affidavit, saved</title>
<link rel="icon" href="${icon}">
<style>${style}</style>
</head>
<body>
<div id="page"><noscript><p>This page checks evidence in your browser, so it needs JavaScript. Without JavaScript, use <code>affidavit verify</code> with this file.</p></noscript></div>
<script>${script}</script>
</body>
</html>
`
}

/** The texts around the parts, in the order of the HTML. */
const FRAME = fillFrame({ policy: '\0', icon: '\0', script: '\0', style: '\0' }).split('\0')
