import { encodeHex, encodeUtf8, sha256 } from '../bytes.ts'
import { FormatError } from '../errors.ts'
import { canonicalizeJson } from '../json/canonical.ts'
import { decodeUtf8 } from '../json/decode-utf8.ts'
import { parseExactJson } from '../json/parse-strict.ts'
import { type Json, memberAt } from '../json/value.ts'
import { isVerifier } from './verifier-page.ts'

/** The program that made a page. */
export type Maker = {
  readonly version: string
  /** Commit hash in hex. Null if unknown, or if the sources differ from this commit. */
  readonly commit: string | null
}

/** The page's own claim about its maker. Not proved. */
type MadeBy = Maker & {
  /** The result of digestVerifier, hex. */
  readonly verifierSha256: string
}

/** Attacker-controlled. */
export type EvidencePage = {
  /** JSON text in UTF-8. Null in a page without evidence. */
  readonly evidence: Uint8Array | null
  readonly madeBy: MadeBy
  /** Computed from the page, hex. */
  readonly verifierSha256: string
}

/*
 * A saved page is the HTML of a verifier. Its data are in separate lines after the title:
 *
 *   <script type="application/json" id="made-by">{…}</script>
 *   <script type="application/json" id="evidence">{…}</script>
 *
 * Browsers do not run such an element, so the content security policy needs no hash for it. The
 * JSON is canonical, and each `<` is written as \u003c: no text of the evidence can end its element
 * or begin another. All else must be a verifier (`isVerifier`): another element, an open attribute,
 * an entity or another encoding could make a browser read other data than this parser.
 */
const LINE = /^<script type="application\/json" id="(made-by|evidence)">([^<\r\n]*)<\/script>\n$/
const LINE_START = '<script type="application/json" id="'
const BEFORE_DATA = '</title>\n'

/** True if attacker-controlled `input` begins like HTML. Evidence never begins like HTML. */
export function isHtml(input: Uint8Array): boolean {
  const start = String.fromCharCode(...input.subarray(0, 64))
  return /^(\u00ef\u00bb\u00bf)?\s*<!doctype html/i.test(start)
}

/** SHA-256, hex, of a verifier's UTF-8 text (a saved page without its data lines). */
export function digestVerifier(verifier: string): string {
  return encodeHex(sha256(encodeUtf8(verifier)))
}

/** Describes the maker of a page, in the form that pages and gateways publish. */
export function writeMadeBy(verifier: string, { version, commit }: Maker) {
  return { version, commit, verifier_sha256: digestVerifier(verifier) }
}

/** Makes a page without evidence from a verifier. Throws TypeError for any other text. */
export function makePage(verifier: string, madeBy: Json): string {
  if (!isVerifier(verifier)) throw new TypeError('expected a verifier, without data')
  return verifier.replace(BEFORE_DATA, (title) => title + writeLine('made-by', madeBy))
}

/**
 * Returns `page` with this evidence. Replaces evidence that the page has. Throws FormatError if
 * `page` is not a saved page.
 */
export function putEvidence(page: string, evidence: Json): string {
  const { madeBy, evidence: before } = locate(page)
  const line = writeLine('evidence', evidence)
  return `${page.slice(0, madeBy.end)}${line}${page.slice((before ?? madeBy).end)}`
}

/**
 * Reads the evidence of an attacker-controlled page, and the maker that the page names. Ignores the
 * page's script and style. Throws FormatError for other HTML, for evidence in another form or
 * place, and for more than one block. Does NOT prove who made the page, nor that the page shows a
 * correct result.
 */
export function readEvidencePage(input: Uint8Array): EvidencePage {
  const page = decodeUtf8(input)
  const { madeBy, evidence } = locate(page)
  return {
    evidence: evidence === null ? null : encodeUtf8(evidence.json),
    madeBy: readMadeBy(madeBy.json),
    verifierSha256: digestVerifier(
      page.slice(0, madeBy.start) + page.slice((evidence ?? madeBy).end),
    ),
  }
}

function writeLine(name: 'made-by' | 'evidence', value: Json): string {
  return `${LINE_START}${name}">${canonicalizeJson(value).replaceAll('<', '\\u003c')}</script>\n`
}

type Line = {
  readonly name: string
  readonly json: string
  readonly start: number
  readonly end: number
}

function locate(page: string): { readonly madeBy: Line; readonly evidence: Line | null } {
  const start = page.indexOf(BEFORE_DATA) + BEFORE_DATA.length
  const madeBy = readLine(page, start)
  if (start < BEFORE_DATA.length || madeBy?.name !== 'made-by') throw otherHtml()
  const evidence = readLine(page, madeBy.end)
  const rest = page.slice((evidence ?? madeBy).end)
  if (evidence?.name === 'made-by' || (rest.startsWith(LINE_START) && evidence !== null))
    throw new FormatError('data_twice', 'expected one block of evidence in the page, got more')
  if (rest.startsWith('<script'))
    throw new FormatError('evidence_unfit', 'expected the evidence as one line after the title')
  if (!isVerifier(page.slice(0, start) + rest)) throw otherHtml()
  return { madeBy, evidence }
}

function otherHtml(): FormatError {
  return new FormatError('not_a_page', 'expected a page that Affidavit saved, got other HTML')
}

/** Reads the data line at `start`. Null if the line there is not a data line. */
function readLine(page: string, start: number): Line | null {
  if (!page.startsWith(LINE_START, start)) return null
  const end = page.indexOf('\n', start) + 1
  const [, name, json] = LINE.exec(page.slice(start, end)) ?? []
  return name === undefined || json === undefined ? null : { name, json, start, end }
}

function readMadeBy(json: string): MadeBy {
  const value = parseExactJson(encodeUtf8(json))
  const version = memberAt(value, 'version')
  const commit = memberAt(value, 'commit')
  const verifierSha256 = memberAt(value, 'verifier_sha256')
  if (
    !(typeof version === 'string' && /^[\w.+-]{1,64}$/.test(version)) ||
    !(commit === null || (typeof commit === 'string' && /^[0-9a-f]{40,64}$/.test(commit))) ||
    !(typeof verifierSha256 === 'string' && /^[0-9a-f]{64}$/.test(verifierSha256))
  )
    throw new FormatError('made_by_unfit', 'expected the page to name version, commit and digest')
  return { version, commit, verifierSha256 }
}
