import { PORTABLE_DIGESTS } from '#attestation/eif/digests.ts'
import { EifError } from '#attestation/eif/eif-error.ts'
import { measureEif } from '#attestation/eif/measure-eif.ts'
import { FormatError } from '#attestation/errors.ts'
import { registersOf } from '#attestation/evidence/document-checks.ts'
import type { NamedBlocks } from '#attestation/evidence/policy.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import { createAttestationVerifier } from '#attestation/nitro/verify-attestation.ts'
import { RELEASE_FORMAT } from '#attestation/release/release.ts'
import { RELEASES_FORMAT } from '#attestation/release/release-list.ts'
import { hasKnownCode } from '#attestation/report/enclave-code.ts'
import { decodeDocumentFile, judgeDocument } from '#attestation/report/judge-document.ts'
import { judgeEvidence } from '#attestation/report/judge-evidence.ts'
import { judgeReleaseFile, statusOf } from '#attestation/report/judge-releases.ts'
import {
  type EvidenceCode,
  EvidenceError,
  isEventStream,
  readEvidence,
  readKeptFiles,
} from '#attestation/report/read-evidence.ts'
import { parseReleaseFile } from '#attestation/report/release-file.ts'
import { isOtherRoot } from '#attestation/report/unknown-root.ts'
import {
  checkBegun,
  createListingVerifier,
  type ListingVerifier,
} from '#attestation/revocation/listing-verifier.ts'
import { parseLists, RevocationListError } from '#attestation/revocation/parse-lists.ts'
import { fetchChainFacts } from '#client/chain-facts.ts'
import { AffidavitError } from '#client/errors.ts'
import { bytesOf } from './bytes-of.ts'
import { compareImage } from './compare-image.ts'
import type { DocumentFound, GivenPolicy, ImageFound, Job, JobOutcome, SourceKind } from './job.ts'
import { PolicyFault } from './policy-fault.ts'
import { type JobPolicy, readCount, readGivenPolicy } from './read-policy.ts'

/** The limit of the command line. Images have no such limit, because they are read in parts. */
const SOURCE_BYTES_MAX = 256 * 1024 * 1024
/** For a file with revocation lists, as on the command line. */
const LISTS_BYTES_MAX = 4 * 1024 * 1024
/** For an answer from the chain's endpoint. */
const CHAIN_TIMEOUT_MS = 30_000

/**
 * `onProgress` gets the finished part, 0 to 1, if known. Never rejects: for a source that cannot be
 * checked, the outcome is `refused`.
 */
export async function runJob(job: Job, onProgress: (done: number) => void): Promise<JobOutcome> {
  try {
    checkContext()
    const read = await readGivenPolicy(job.policy)
    const kind = job.kind === 'auto' ? await recognize(job.source) : job.kind
    switch (kind) {
      case 'image':
        return { kind, found: await measure(job.source, read, onProgress) }
      case 'document':
        return { kind, found: await judgeOneDocument(job, read) }
      case 'release':
        return await judgeRelease(job, read)
      case 'evidence':
        return await judgeOne(job, read)
    }
  } catch (fault) {
    return refusalOf(fault)
  }
}

/** Browsers offer no cryptography to a page that was loaded over http from another machine. */
function checkContext(): void {
  if (globalThis.isSecureContext) return
  throw new PolicyFault(
    'This page came from another machine without encryption. On such a page this browser cannot check signatures.',
    'Open the page over https. Or save it with the button below and open the file from your disk.',
  )
}

/** Reads the kind from the first bytes. The kind decides only which checks are made. */
async function recognize(source: Blob): Promise<Exclude<SourceKind, 'auto'>> {
  const start = new Uint8Array(await source.slice(0, 4096).arrayBuffer())
  if (String.fromCharCode(...start.subarray(0, 4)) === '.eif') return 'image'
  if (start[0] === 0x84 || start[0] === 0xd2) return 'document'
  if (isEventStream(start)) return 'evidence'
  const text = new TextDecoder().decode(start).trim()
  if (text.startsWith('-----BEGIN CERTIFICATE'))
    throw new PolicyFault(
      'This is a certificate, not evidence.',
      'A root that you trust goes into “Your policy”, under “Roots”.',
    )
  if (/^(0x)?(84|d2)[0-9a-f\s]+$/i.test(text) || /^(hE|0o)[\w+/=\s-]+$/.test(text))
    return 'document'
  const format = /^\{[^{}[\]]*"format"\s*:\s*"([^"]{1,64})"/.exec(text)?.[1]
  return format === RELEASE_FORMAT || format === RELEASES_FORMAT ? 'release' : 'evidence'
}

async function judgeOne(job: Job, read: JobPolicy): Promise<JobOutcome> {
  const { source, request, answer, idempotent, rpc, policy } = job
  const { expected } = read
  if (expected.confirmationsMin !== null && rpc === null)
    throw new PolicyFault(
      'You expect confirmations, but you ask no chain: only a chain can confirm a block.',
      'Give the URL of a chain endpoint and press “Ask the chain”, or clear the number.',
    )
  const bytes = await bytesOf(source, SOURCE_BYTES_MAX, 'The evidence')
  const kept = readKeptFiles({
    request: request && (await bytesOf(request, SOURCE_BYTES_MAX, 'The request')),
    answer: answer && (await bytesOf(answer, SOURCE_BYTES_MAX, 'The answer')),
    idempotent,
  })
  const evidence = readEvidence(bytes, kept.requestBody, idempotent)
  const isOfOne =
    evidence.kind === 'bundle' || (evidence.kind === 'records' && evidence.subjects.length === 1)
  const verifier = await openVerifier(policy, { isOfOne, nowMs: Date.now() })
  const askChain = rpc === null ? null : (blocks: NamedBlocks) => askChainAt(rpc, blocks)
  const judge = (ask: typeof askChain) =>
    judgeEvidence(evidence, { expected, kept, verifier, askChain: ask })
  const { judged, unreached } = await judge(askChain).then(
    (judged) => ({ judged, unreached: null }),
    // A wrong or silent endpoint is not the file's fault: it keeps its verdict without a chain.
    async (fault: unknown) => {
      if (!(fault instanceof AffidavitError)) throw fault
      return { judged: await judge(null), unreached: fault.message }
    },
  )
  const [unused] = isOfOne ? [] : verifier.unused()
  if (unused !== undefined) throw unused
  const { measurements, releases, roots } = expected.attestation
  return {
    kind: 'evidence',
    judged,
    unreached,
    expected: {
      code: releases !== undefined || (measurements !== 'any' && measurements.length > 0),
      configuration: expected.configurations.length > 0,
      isDevelopment: isOtherRoot(roots),
      chain: rpc !== null && unreached === null,
      releases: read.releases,
    },
  }
}

/** Uses the reader's revocation lists. */
async function openVerifier(
  { revocationLists }: GivenPolicy,
  { isOfOne, nowMs }: { readonly isOfOne: boolean; readonly nowMs: number },
): Promise<ListingVerifier> {
  const files = revocationLists.map(async (blob, at) => {
    const bytes = await bytesOf(blob, LISTS_BYTES_MAX, 'A revocation list')
    return parseLists(bytes, `revocation list ${at + 1}`)
  })
  const lists = (await Promise.all(files)).flat()
  checkBegun(lists, nowMs)
  return createListingVerifier(createAttestationVerifier(), lists, { isOfOne })
}

function askChainAt(url: string, blocks: NamedBlocks) {
  const fetch = globalThis.fetch.bind(globalThis)
  return fetchChainFacts({ fetch, timeoutMs: CHAIN_TIMEOUT_MS }, url, blocks)
}

async function judgeOneDocument(job: Job, read: JobPolicy): Promise<DocumentFound> {
  const { policy } = job
  const document = decodeDocumentFile(await bytesOf(job.source, SOURCE_BYTES_MAX, 'The document'))
  const at = policy.time === 'given' ? readTime(policy.at) : new Date()
  const nonce = policy.nonce.trim()
  if (!/^(0x)?([0-9a-f]{2})*$/i.test(nonce))
    throw new PolicyFault(
      'The nonce is not hex.',
      'Give pairs of hex digits, or leave the field empty.',
    )
  const { measurements, roots } = read.expected.attestation
  const maxAge = readCount(policy.maxAge, 'The greatest age in seconds', 999_999_999)
  const verifier = await openVerifier(policy, { isOfOne: true, nowMs: at.getTime() })
  const judged = await judgeDocument(document, {
    at,
    verifier,
    policy: {
      ...read.expected.attestation,
      mode: policy.time === 'own' ? 'historical' : 'current',
      ...(nonce === '' ? {} : { nonce: hexOf(nonce.replace(/^0x/i, '')) }),
      ...(maxAge === null ? {} : { maxAgeMs: maxAge * 1000 }),
    },
  })
  if (judged.valid) {
    const { facts } = judged
    const matchedRegisters = registersOf(measurements, facts.matchedSet)
    return {
      valid: true,
      facts,
      isDevelopment: isOtherRoot(roots),
      anyCode: measurements === 'any',
      isCodeKnown: hasKnownCode({ ...facts, matchedRegisters }),
    }
  }
  const { error, rules } = judged
  return { valid: false, code: error.code, message: error.message, rules }
}

function readTime(text: string): Date {
  const trimmed = text.trim()
  const time = /^\d{1,12}$/.test(trimmed) ? new Date(Number(trimmed) * 1000) : new Date(trimmed)
  if (trimmed !== '' && !Number.isNaN(time.getTime())) return time
  throw new PolicyFault(
    'This is not a valid time.',
    'Give a time such as 2026-11-21T14:00:00Z, or seconds since 1970.',
  )
}

function hexOf(digits: string): Uint8Array {
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16))
}

async function judgeRelease(job: Job, read: JobPolicy): Promise<JobOutcome> {
  const bytes = await bytesOf(job.source, SOURCE_BYTES_MAX, 'The release')
  const file = parseReleaseFile(parseExactJson(bytes))
  const entries = file.kind === 'release' ? [] : file.signed.list.releases
  const statuses = entries.map((entry) => statusOf(entry, entries, Date.now()))
  return { kind: 'release', file, judged: judgeReleaseFile(file, read.trust), statuses }
}

/** Bytes of an image to read between two progress reports. */
const PROGRESS_BYTES = 4 * 1024 * 1024

async function measure(
  source: Blob,
  { expected }: JobPolicy,
  onProgress: (done: number) => void,
): Promise<ImageFound> {
  try {
    const chunks = readChunks(source, onProgress)
    const report = await measureEif({ sizeBytes: source.size, chunks }, PORTABLE_DIGESTS)
    const comparison = compareImage(report.measurements, expected.attestation, Date.now())
    return { valid: true, report, comparison }
  } catch (fault) {
    if (fault instanceof EifError) return { valid: false, code: fault.code, message: fault.message }
    throw fault
  }
}

async function* readChunks(
  source: Blob,
  onProgress: (done: number) => void,
): AsyncGenerator<Uint8Array, void, undefined> {
  const reader = source.stream().getReader()
  let bytes = 0
  let reported = 0
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return
    yield value
    bytes += value.length
    if (bytes - reported < PROGRESS_BYTES) continue
    reported = bytes
    onProgress(bytes / source.size)
  }
}

/** States why nothing could be checked, and what to do. */
function refusalOf(fault: unknown): JobOutcome {
  if (fault instanceof PolicyFault)
    return { kind: 'refused', message: fault.message, advice: fault.advice }
  if (fault instanceof EvidenceError)
    return { kind: 'refused', message: fault.message, advice: EVIDENCE_ADVICE[fault.code] }
  if (fault instanceof AffidavitError)
    return {
      kind: 'refused',
      message: fault.message,
      advice:
        'There is no result. Is the URL right? Does the endpoint answer pages of other origins (CORS)? Check without the chain, or ask another endpoint.',
    }
  if (fault instanceof RevocationListError)
    return {
      kind: 'refused',
      message: `${fault.source}: ${fault.message}`,
      advice:
        'Give a valid list from an issuer of the document’s certificates, or remove the list: then revocation is not checked.',
    }
  if (fault instanceof FormatError)
    return {
      kind: 'refused',
      message: fault.message,
      advice: 'Give the complete file, without changes, as it was published.',
    }
  const message = fault instanceof Error ? `${fault.name}: ${fault.message}` : 'unknown fault'
  return {
    kind: 'refused',
    message: `The check could not be finished: ${message}`,
    advice: 'There is no result. Try again, or check with the command line: affidavit verify FILE.',
  }
}

const EVIDENCE_ADVICE: Readonly<Record<EvidenceCode, string>> = {
  not_json:
    'Give the file as it came: evidence and answers are JSON. Nothing can be checked in a PDF or a picture.',
  not_evidence:
    'Give the file as it came: evidence, a record, an answer, a kept stream, an attestation document, a release or an image.',
  request_missing: 'Give the request that was sent, under “What you kept”.',
  request_twice:
    'Remove the request from “What you kept”: the evidence with the answer already has it.',
  answer_unfit:
    'Under “What you kept”, give the answer as JSON, its event stream, or evidence that has it.',
  answer_twice:
    'Remove the answer from “What you kept”, or check the evidence instead of the answer.',
  several_records: 'Give one record, or remove request and answer from “What you kept”.',
}
