import { createHash } from 'node:crypto'
import { writeVerifier } from '../../attestation/report/verifier-page.ts'
import { ASSETS_PATH, ICON, type PageAssets, type SavedAssets } from './bundle.ts'

/** The headers of a page. */
export type PageHeaders = Readonly<Record<string, string>>

/**
 * The HTML of a page: its frame, and the files that it loads. Its script makes its content. Titles
 * are our own texts. A page of a development gateway has a mark, and asks for that gateway's
 * expectations.
 */
export function renderShell(
  title: string,
  { script, imports, styles }: PageAssets,
  { isDevelopment = false } = {},
): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">${isDevelopment ? '\n<meta name="affidavit-development" content="yes">' : ''}
<title>${title} · Affidavit</title>
<link rel="icon" href="${ICON_URL}">
${styles.map((name) => `<link rel="stylesheet" href="${ASSETS_PATH}/${name}">`).join('\n')}
${imports.map((name) => `<link rel="modulepreload" href="${ASSETS_PATH}/${name}">`).join('\n')}
<script type="module" src="${ASSETS_PATH}/${script}"></script>
</head>
<body>
<div id="page"><noscript><p>This page checks evidence in your browser, so it needs JavaScript. Without JavaScript, use <code>affidavit verify</code>, and <a href="/docs">the API</a>.</p></noscript></div>
</body>
</html>
`
}

/** The permissions of a page, beyond those of every page. */
type Allowances = {
  /** Origins that its scripts may call, beside the gateway itself. */
  readonly connect?: readonly string[]
  /** Sources of its workers, beside the gateway itself. */
  readonly workers?: readonly string[]
  /** The policies by which its scripts may make a script's URL. */
  readonly trustedTypes?: readonly string[]
}

/**
 * Gives the headers of a page. A page loads nothing from another origin, has no script or style in
 * its own text, and cannot be framed.
 */
export function pageHeaders({ connect = [], workers = [], trustedTypes }: Allowances = {}) {
  const policy = {
    'default-src': ["'none'"],
    'script-src': ["'self'"],
    'style-src': ["'self'"],
    'img-src': ["'self'", 'data:'],
    'connect-src': ["'self'", ...connect],
    'worker-src': ["'self'", ...workers],
    'base-uri': ["'none'"],
    'form-action': ["'none'"],
    'frame-ancestors': ["'none'"],
    ...trustedTypesOf(trustedTypes),
  }
  return {
    'content-security-policy': writePolicy(policy),
    'cache-control': 'no-cache',
    ...SAFE_HEADERS,
  } satisfies PageHeaders
}

function trustedTypesOf(names: readonly string[] = ["'none'"]) {
  return { 'require-trusted-types-for': ["'script'"], 'trusted-types': names }
}

function writePolicy(policy: Readonly<Record<string, readonly string[]>>): string {
  return Object.entries(policy)
    .map(([name, values]) => `${name} ${values.join(' ')}`)
    .join('; ')
}

/**
 * The permissions of a page with a worker that checks evidence. The worker's text is part of the
 * page's own script.
 */
export const CHECKER_ALLOWANCES = {
  workers: ['blob:'],
  trustedTypes: ['verify-worker'],
} satisfies Allowances

/**
 * The permissions of the page that checks evidence, served or saved. Its reader may have a chain
 * asked at any endpoint over https, and over http at an endpoint on this machine. The page loads
 * evidence and nothing else, and makes no call before its reader presses a button.
 */
export const VERIFY_ALLOWANCES = {
  ...CHECKER_ALLOWANCES,
  connect: ['https:', 'http://127.0.0.1:*', 'http://localhost:*'],
} satisfies Allowances

/**
 * The verifier: the page that checks evidence, as one file with its policy in it. Throws for a text
 * that would end its element, or that a browser would read otherwise than it is hashed.
 */
export function renderVerifier({ script, style }: SavedAssets): string {
  if (/<\/script|<!--|[\r\0]/i.test(script) || /<\/style|[\r\0]/i.test(style))
    throw new TypeError('expected a script and a style that a page can hold unchanged')
  const hashOf = (text: string) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`
  const policy = writePolicy({
    'default-src': ["'none'"],
    'script-src': [hashOf(script)],
    'style-src': [hashOf(style)],
    'img-src': ['data:'],
    'connect-src': VERIFY_ALLOWANCES.connect,
    'worker-src': VERIFY_ALLOWANCES.workers,
    'base-uri': ["'none'"],
    'form-action': ["'none'"],
    ...trustedTypesOf(VERIFY_ALLOWANCES.trustedTypes),
  })
  return writeVerifier({ policy, icon: ICON_URL, script, style })
}

const ICON_URL = `data:image/svg+xml,${encodeURIComponent(ICON.trim())}`

/**
 * For all that a browser shows or runs, beside the headers of every answer
 * (src/api/track-calls.ts).
 */
export const SAFE_HEADERS: PageHeaders = {
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), geolocation=(), microphone=(), payment=(), usb=()',
}
