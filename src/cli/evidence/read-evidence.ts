import type { KeptAnswer } from '../../../attestation/compare-exchange.ts'
import { asksForUsage } from '../../../attestation/completion-hash.ts'
import { FormatError } from '../../../attestation/errors.ts'
import { type EvidenceBundle, parseEvidenceBundle } from '../../../attestation/evidence/bundle.ts'
import { JsonError } from '../../../attestation/json/json-error.ts'
import { parseExactJson, parseStrictJson } from '../../../attestation/json/parse-strict.ts'
import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '../../../attestation/json/value.ts'
import {
  parseSavedProof,
  SAVED_PROOF_FORMAT,
  type SavedProof,
} from '../../../attestation/saved-proof.ts'
import { splitEvents } from '../../../attestation/verify-stream.ts'
import { CliError, EXIT_CODES, telling } from '../faults.ts'
import { readSource, writeOutput } from '../files.ts'
import type { GatewayOptions } from '../options.ts'
import { printable } from '../printable.ts'

/**
 * One thing to check: a stored record, or an answer with the request that it answers. `chunks`: of
 * a kept stream, all of them; `record` is then the one with the proof.
 */
export type Subject = {
  readonly record: Json
  readonly request?: Json
  readonly chunks?: readonly JsonObject[]
}

/** What there is to check: an evidence bundle, of whatever version, or records. */
type Input =
  | { readonly kind: 'bundle'; readonly bundle: JsonObject }
  | { readonly kind: 'records'; readonly subjects: readonly Subject[] }

/**
 * Gives what there is to check in an input: an evidence bundle (it has a `format`), a call that the
 * client saved, a stored record, a page of the history (each of its records), an answer of the
 * verified endpoint, or the event stream of one as it came; the last two with the request's body.
 * Throws CliError for anything else, and for the body beside a saved call, which has its own.
 */
export function readInput(input: Uint8Array, requestBody: Uint8Array | null): Input {
  if (isEventStream(input)) {
    return { kind: 'records', subjects: [readStream(input, readRequest(requestBody))] }
  }
  const value = readJson(() => parseExactJson(input), 'the input')
  if (!isJsonObject(value)) throw new CliError('expected the input to be a JSON object')
  if (memberOf(value, 'format') === SAVED_PROOF_FORMAT && requestBody !== null)
    throw new CliError(
      'expected no --request: the saved proof has the request that was sent',
      EXIT_CODES.usage,
    )
  if (memberOf(value, 'format') === SAVED_PROOF_FORMAT)
    return { kind: 'records', subjects: [readProof(value)] }
  if (memberOf(value, 'format') !== undefined) return { kind: 'bundle', bundle: value }
  return { kind: 'records', subjects: findSubjects(value, requestBody) }
}

/** A call that the client saved: its request, and its answer or the chunks of its stream. */
function readProof(value: JsonObject): Subject {
  const { request, answer } = parseProof(value)
  if (answer.kind === 'whole') return { record: answer.answer, request }
  const chunks = answer.chunks.filter(isJsonObject)
  return { record: chunks.at(-1) ?? {}, request, chunks }
}

function parseProof(value: JsonObject): SavedProof {
  const tell = ({ message }: FormatError) => new CliError(`the saved proof: ${message}`)
  return telling(() => parseSavedProof(value), FormatError, tell)
}

/**
 * Gives the answer in a file that its caller kept: an answer as JSON, the event stream of one as it
 * came, or a call that the client saved, which has its request too. Throws CliError for anything
 * else, a record among it.
 */
export function readKeptAnswer(input: Uint8Array): {
  readonly answer: KeptAnswer
  /** Null in a file without one. */
  readonly request: Json | null
} {
  if (isEventStream(input))
    return { answer: { kind: 'stream', chunks: readChunks(input) }, request: null }
  const answer = readJson(() => parseExactJson(input), 'the answer')
  if (isJsonObject(answer) && memberOf(answer, 'format') === SAVED_PROOF_FORMAT)
    return parseProof(answer)
  if (!isJsonObject(answer) || memberOf(answer, 'choices') === undefined)
    throw new CliError(
      'expected --answer to be an answer as JSON, its event stream, or a saved proof',
      EXIT_CODES.usage,
    )
  return { answer: { kind: 'whole', answer }, request: null }
}

/** Gives the request in a file that its caller kept: the body that was sent. Throws CliError. */
export function readKeptRequest(input: Uint8Array): Json {
  return readJson(() => parseStrictJson(input), 'the request')
}

function findSubjects(value: JsonObject, requestBody: Uint8Array | null): readonly Subject[] {
  const page = memberOf(value, 'completions')
  if (isJsonArray(page)) {
    if (page.length === 0) throw new CliError('the page has no records: there is nothing to check')
    return page.map((record) => ({ record }))
  }
  if (memberOf(value, 'request') !== undefined) return [{ record: value }]
  if (memberOf(value, 'choices') === undefined)
    throw new CliError(
      'expected a record, a page of records, an answer of the verified endpoint, or an evidence bundle',
    )
  return [{ record: value, request: readRequest(requestBody) }]
}

function isEventStream(input: Uint8Array): boolean {
  const start = Buffer.from(input.subarray(0, 16)).toString('latin1').trimStart()
  return /^(data|event|id|retry)?:/.test(start)
}

function readRequest(body: Uint8Array | null): Json {
  if (body !== null) return readKeptRequest(body)
  throw new CliError(
    'an answer does not repeat its request: give the body that was sent with --request FILE',
    EXIT_CODES.usage,
  )
}

/**
 * The chunks of a kept stream, with the one that carries the proof as the record. Whether they are
 * all that the enclave gave out, and what they say, is verifyStream's to check.
 */
function readStream(input: Uint8Array, request: Json): Subject {
  const chunks = readChunks(input)
  const proof = chunks.at(-1)
  if (proof === undefined || memberOf(proof, 'receipt') === undefined)
    throw new CliError('expected the last chunk before [DONE] to carry the proof')
  if (isOfVersion1(proof) && !(isJsonObject(request) && asksForUsage(request)))
    throw new CliError(
      'the request did not ask for usage (stream_options.include_usage), which is hashed all the same: ' +
        `fetch the record of hash ${printable(String(proof.hash))} instead`,
    )
  return { record: proof, request, chunks }
}

function readChunks(input: Uint8Array): readonly JsonObject[] {
  const tell = ({ message }: FormatError) => new CliError(message)
  const texts = telling(() => splitEvents(input), FormatError, tell)
  const chunks = texts.map((text) => readJson(() => parseExactJson(Buffer.from(text)), 'a chunk'))
  if (!chunks.every(isJsonObject)) throw new CliError('expected every chunk to be a JSON object')
  return chunks
}

/** Receipts of version 1 do not have the hash of the chunks. */
function isOfVersion1(proof: JsonObject): boolean {
  return memberAt(proof, 'receipt', 'version') === 1
}

function readJson(parse: () => Json, what: string): Json {
  const tell = ({ message }: JsonError) =>
    new CliError(`${what} is not JSON that means one thing only: ${message}`)
  return telling(parse, JsonError, tell)
}

/**
 * Gives the evidence bundle in attacker-controlled `bytes`. Throws CliError for what is none;
 * `what` names the source.
 *
 * Does NOT prove anything: see verifyBundle.
 */
export function readBundle(bytes: Uint8Array, what: string): EvidenceBundle {
  const tell = ({ message }: FormatError) =>
    new CliError(`expected ${what} to be an evidence bundle: ${message}`)
  return telling(() => parseEvidenceBundle(parseExactJson(bytes)), FormatError, tell)
}

/** The own member of `value` that a path of names leads to, or undefined. */
export function memberAt(value: Json | undefined, ...path: readonly string[]): Json | undefined {
  return path.reduce<Json | undefined>(
    (at, name) => (isJsonObject(at) ? memberOf(at, name) : undefined),
    value,
  )
}

/** What the options say, as commander gives it. */
export type EvidenceOptions = GatewayOptions & { readonly output?: string }

/**
 * Writes the evidence bundle of a completion, exactly as the gateway gives it. Throws CliError for
 * any other answer.
 */
export async function fetchEvidence(hash: string, options: EvidenceOptions): Promise<void> {
  // Loaded where it is used: checks of files need none of it.
  const { chooseKey, evidenceUrl } = await import('../gateway-access.ts')
  const url = evidenceUrl(hash, options)
  const bytes = await readSource(url, chooseKey(url, options))
  const { record, block } = readBundle(bytes, 'the answer')
  if (record.hash !== hash)
    throw new CliError('expected the evidence of this hash, got that of another one')
  const text = new TextDecoder().decode(bytes)
  await writeOutput(text.endsWith('\n') ? text : `${text}\n`, options.output)
  if (block === null)
    process.stderr.write(
      'The transaction is not mined yet: this bundle does not show a block. Ask again later.\n',
    )
}
