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
 */
export function writeVerifier({ policy, icon, script, style }: SavedParts): string {
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
