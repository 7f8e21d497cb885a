import { attempt } from '../finding.ts'
import { canonicalizeJson } from '../json/canonical.ts'
import { parseExactJson } from '../json/parse-strict.ts'
import { isJsonObject, type Json, type JsonObject, memberAt, memberOf } from '../json/value.ts'
import { BUNDLE_FORMAT, bundleForms } from './bundle-forms.ts'

/** Maximum calls of a file, and of a session. */
export const CALLS_MAX = 10_000

const { invalid } = bundleForms
const LINE_FEED = 0x0a

/** Writes several calls as JSON Lines, with each document of a provider once. */
export function writeEvidenceLines(calls: readonly JsonObject[]): string {
  return leaveOutRepeats(calls)
    .map((call) => `${canonicalizeJson(call)}\n`)
    .join('')
}

/**
 * The first call with a provider's document has it, if any call does. The later ones leave it out.
 */
function leaveOutRepeats(calls: readonly JsonObject[]): readonly JsonObject[] {
  const documents = new Map<Json, Json>()
  for (const call of calls) {
    const document = memberAt(call, ...DOCUMENT)
    if (document !== undefined) documents.set(memberAt(call, ...DIGEST) ?? null, document)
  }
  return calls.map((call) => {
    const part = memberOf(call, 'provider_evidence')
    if (!isJsonObject(part)) return call
    const { document: _, ...rest } = part
    const digest = memberOf(part, 'sha256') ?? null
    const document = documents.get(digest)
    documents.delete(digest)
    return {
      ...call,
      provider_evidence: { ...rest, ...(document === undefined ? {} : { document }) },
    }
  })
}

const DIGEST = ['provider_evidence', 'sha256'] as const
const DOCUMENT = ['provider_evidence', 'document'] as const

/** The evidence of calls as a page has it: that of one call, or a list. */
export function callsInPage(calls: readonly JsonObject[]): Json {
  const [only] = calls
  return only !== undefined && calls.length === 1 ? only : leaveOutRepeats(calls)
}

/**
 * Reads evidence in JSON Lines from attacker-controlled `bytes`: an object per line, and no empty
 * line. Gives each call the provider's document that an earlier line has. Null if the first line
 * has another format: the bytes are then one JSON text, or something else. Throws JsonError, and
 * FormatError `invalid_bundle` for another line, or too many. Does NOT read the other members: see
 * parseEvidenceBundle.
 */
export function readEvidenceLines(bytes: Uint8Array): readonly JsonObject[] | null {
  const first = attempt(() => readLine(bytes, 0))
  if ('fault' in first) return null
  const { json, end } = first.value
  if (!isEvidence(json)) return null
  const calls = [json]
  for (let place = end; place < bytes.length; ) {
    const line = readLine(bytes, place)
    calls.push(callAt(line.json, calls.length))
    place = line.end
  }
  return shareDocuments(calls)
}

/** Reads the array of a saved page as readEvidenceLines reads lines. */
export function readEvidenceArray(values: readonly Json[]): readonly JsonObject[] {
  return shareDocuments(values.map(callAt))
}

function callAt(json: Json, at: number): JsonObject {
  if (at === CALLS_MAX) throw invalid('the file', `at most ${CALLS_MAX} lines`)
  if (isEvidence(json)) return json
  throw invalid(`line ${at + 1}`, `${BUNDLE_FORMAT}, as in line 1`)
}

/** Gives each call the provider's document that a call before it has. */
function shareDocuments(calls: readonly JsonObject[]): readonly JsonObject[] {
  const known = new Map<Json, Json>()
  return calls.map((call) => {
    const digest = memberAt(call, ...DIGEST) ?? null
    const document = memberAt(call, ...DOCUMENT)
    if (document !== undefined) known.set(digest, document)
    const earlier = known.get(digest)
    const part = memberOf(call, 'provider_evidence')
    return document === undefined && earlier !== undefined && isJsonObject(part)
      ? { ...call, provider_evidence: { ...part, document: earlier } }
      : call
  })
}

function readLine(bytes: Uint8Array, place: number): { readonly json: Json; readonly end: number } {
  const found = bytes.indexOf(LINE_FEED, place)
  const end = found === -1 ? bytes.length : found
  return { json: parseExactJson(bytes.subarray(place, end)), end: end + 1 }
}

function isEvidence(json: Json): json is JsonObject {
  return isJsonObject(json) && memberOf(json, 'format') === BUNDLE_FORMAT
}
