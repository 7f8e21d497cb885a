import { createHash } from 'node:crypto'
import { writeVerifier } from '#attestation/report/verifier-page.ts'
import { ASSETS_PATH, ICON, type PageAssets, type SavedAssets } from './bundle.ts'

export type PageHeaders = Readonly<Record<string, string>>

/**
 * Returns the HTML of a page. The page's script makes the content. Titles are our own texts, so
 * they are not escaped. A page of a development gateway has a mark, and requests the gateway's
 * policy.
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

/** Permissions of a page, besides those that every page has. */
type Allowances = {
  /** Origins that the page's scripts may call, besides the gateway. */
  readonly connect?: readonly string[]
  /** Sources from which the page may load workers, besides the gateway. */
  readonly workers?: readonly string[]
  /**
   * Names of trusted-types policies with which the page's scripts may create the URL of a script.
   */
  readonly trustedTypes?: readonly string[]
}

/**
 * With these headers, the page loads nothing from another origin, has no script or style in its
 * HTML, and cannot be shown in a frame.
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

/** For a page that checks evidence in a worker. The page starts the worker from a blob. */
export const CHECKER_ALLOWANCES = {
  workers: ['blob:'],
  trustedTypes: ['verify-worker'],
} satisfies Allowances

/**
 * For the page that checks evidence, served or saved. The reader may ask a chain at any https
 * endpoint, or at an http endpoint on the reader's own machine. The page loads only evidence, and
 * makes no call before the reader presses a button.
 */
export const VERIFY_ALLOWANCES = {
  ...CHECKER_ALLOWANCES,
  connect: ['https:', 'http://127.0.0.1:*', 'http://localhost:*'],
} satisfies Allowances

/**
 * The page that checks evidence, as one file with its policy. Throws TypeError if script or style
 * would end their HTML element too early, or if a browser would change the hashed text.
 */
export function renderVerifier({ script, style }: SavedAssets): string {
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
 * Headers for every file that a browser shows or runs. The file also has the headers of every
 * answer (src/api/track-calls.ts).
 */
export const SAFE_HEADERS: PageHeaders = {
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), geolocation=(), microphone=(), payment=(), usb=()',
}
