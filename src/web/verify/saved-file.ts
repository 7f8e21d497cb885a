import { encodeBase64, encodeUtf8, sha256 } from '#attestation/bytes.ts'
import { callsInPage, readEvidenceLines } from '#attestation/evidence/evidence-lines.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import { isJsonArray, type Json, memberAt } from '#attestation/json/value.ts'
import {
  type EvidencePage,
  isHtml,
  makePage,
  putEvidence,
  readEvidencePage,
} from '#attestation/report/evidence-page.ts'
import { writeVerifier } from '#attestation/report/verifier-page.ts'
import { IS_COPY } from '../kit/frame.tsx'

/** Maximum characters of the page that a gateway sends for saving. */
const PAGE_LENGTH_MAX = 4 * 1024 * 1024

/**
 * The evidence inside this page. It is read as strictly as a file that the reader drops. Null when
 * this page has no evidence.
 */
export const OWN_EVIDENCE: File | null = findOwnEvidence()

function findOwnEvidence(): File | null {
  if (!IS_COPY || document.querySelector('#evidence') === null) return null
  const lines = [...document.querySelectorAll('#made-by, #evidence')].map(
    ({ id, textContent }) => `<script type="application/json" id="${id}">${textContent}</script>\n`,
  )
  const verifier = writeVerifier({ policy: '', icon: '', script: '', style: '' })
  const page = verifier.replace('</title>\n', (title) => title + lines.join(''))
  return new File([page], 'this file')
}

/**
 * Returns the saved page with the evidence from `source`, and with no other evidence. `source` is a
 * evidence, a record, or a page that contains one of these. Rejects for evidence that
 * is not JSON.
 */
export async function writeEvidencePage(source: Blob): Promise<{
  readonly page: string
  /** 64 hex digits. Null when the evidence names no completion. */
  readonly hash: string | null
  readonly hasQuestion: boolean
  readonly hasAnswer: boolean
}> {
  const bytes = new Uint8Array(await source.arrayBuffer())
  const evidence = readSaved(bytes)
  return {
    page: putEvidence(IS_COPY ? writeOwnPage() : await fetchPage(), evidence),
    hash: hashIn(evidence),
    hasQuestion: hasMember(evidence, ['request']),
    hasAnswer: hasMember(evidence, ['response', 'events', 'choices']),
  }
}

function readSaved(bytes: Uint8Array): Json {
  const text = isHtml(bytes) ? readEvidencePage(bytes).evidence : bytes
  if (text === null) throw new Error('There is no evidence in the page.')
  const calls = readEvidenceLines(text)
  return calls === null ? parseExactJson(text) : callsInPage(calls)
}

function hashIn(evidence: Json): string | null {
  const hash = memberAt(evidence, 'record', 'hash') ?? memberAt(evidence, 'hash')
  return typeof hash === 'string' && /^[0-9a-f]{64}$/.test(hash) ? hash : null
}

/** True if the evidence, its record, or a completion in its list has one of these members. */
function hasMember(evidence: Json, names: readonly string[]): boolean {
  const page = memberAt(evidence, 'completions')
  const calls = isJsonArray(evidence) ? evidence : [evidence]
  const records = calls.map((call) => memberAt(call, 'record'))
  const places = [...calls, ...records, ...(isJsonArray(page) ? page : [])]
  return places.some((place) => names.some((name) => memberAt(place, name) !== undefined))
}

async function fetchPage(): Promise<string> {
  const response = await fetch('/verify/copy')
  const page = await response.text()
  if (!response.ok || page.length > PAGE_LENGTH_MAX)
    throw new Error('The gateway did not give the page to save.')
  return page
}

/**
 * Returns this page's digest, and what the page states about its maker. Null when the page is
 * incomplete.
 */
export function readOwnPage(): EvidencePage | null {
  try {
    return readEvidencePage(encodeUtf8(writeOwnPage()))
  } catch {
    return null
  }
}

/**
 * Returns this page as HTML without its evidence. A page that was opened from a disk cannot fetch
 * itself, so the HTML is written from the document.
 */
function writeOwnPage(): string {
  const policy = attributeOf('meta[http-equiv="content-security-policy"]', 'content')
  // Browser extensions may add elements. The page's policy shows which elements belong to the page.
  const textOf = (name: 'script' | 'style') =>
    [...document.querySelectorAll(name)]
      .map(({ textContent }) => textContent ?? '')
      .find((text) => policy.includes(encodeBase64(sha256(encodeUtf8(text))))) ?? ''
  const verifier = writeVerifier({
    policy,
    icon: attributeOf('link[rel="icon"]', 'href'),
    script: textOf('script'),
    style: textOf('style'),
  })
  return makePage(verifier, readMadeBy())
}

function readMadeBy(): Json {
  return parseExactJson(encodeUtf8(document.querySelector('#made-by')?.textContent ?? ''))
}

function attributeOf(selector: string, name: string): string {
  return document.querySelector(selector)?.getAttribute(name) ?? ''
}
