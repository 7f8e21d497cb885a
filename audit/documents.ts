import { hash } from 'node:crypto'
import { decodeBase64, encodeHex, equalBytes } from '#attestation/bytes.ts'
import { FormatError } from '#attestation/errors.ts'
import { digestBootConfiguration } from '#attestation/evidence/boot-configuration.ts'
import { findExpectedCode } from '#attestation/evidence/document-checks.ts'
import {
  type HeadAttestation,
  parseHeadAttestation,
} from '#attestation/evidence/head-attestation-form.ts'
import { expectsCode } from '#attestation/evidence/policy.ts'
import {
  type BootStatementCheckName,
  verifyBootStatement,
} from '#attestation/evidence/verify-boot-statement.ts'
import {
  type HeadAttestationCheckName,
  type HeadAttestationReport,
  verifyHeadAttestation,
} from '#attestation/evidence/verify-head-attestation.ts'
import type { Check } from '#attestation/finding.ts'
import type { Json } from '#attestation/json/value.ts'
import { AttestationError } from '#attestation/nitro/attestation-error.ts'
import { type AttestationDocument, decodeAttestationPayload } from '#attestation/nitro/document.ts'
import { FUTURE_SKEW_MS_DEFAULT } from '#attestation/nitro/policy.ts'
import { orNull } from '#attestation/or-null.ts'
import type { Release } from '#attestation/release/release.ts'
import { nameRelease } from '#attestation/release/release-name.ts'
import { isoOf } from '#attestation/report/printable.ts'
import type { AuditScope, LogContext } from './audit-context.ts'
import type { ChainBlock, ChainSource } from './chain.ts'
import type { FindingCode, Ledger } from './findings.ts'
import type { ServedLog } from './gateway.ts'
import { GatewayFault } from './gateway-http.ts'
import { createMemory } from './remember.ts'

/** An enclave renews its document every few hours. */
const DOCUMENTS_MAX = 1_000

type DocumentFault = { readonly code: FindingCode; readonly message: string }

export type DocumentVerdict = {
  /** SHA-256, hex. */
  readonly digest: string
  readonly faults: readonly DocumentFault[]
  /** Null without expected releases, or for a faulty document. */
  readonly release: Release | null
  /**
   * When completions with this document can finish, Unix milliseconds. Null if the document is not
   * genuine.
   */
  readonly validMs: { readonly from: number; readonly to: number } | null
}

/** Each document is checked and decoded once. */
type DocumentJudge = {
  decode(document: Uint8Array): AttestationDocument
  judge(base64: string): Promise<DocumentVerdict>
}

export function createDocumentJudge(context: LogContext): DocumentJudge {
  const verdicts = createMemory<Promise<DocumentVerdict>>(DOCUMENTS_MAX)
  const decoded = createMemory<AttestationDocument>(DOCUMENTS_MAX)
  return {
    decode: (document) =>
      decoded(hash('sha256', document), () => decodeAttestationPayload(document)),
    judge: (base64) => verdicts(hash('sha256', base64), () => judgeDocument(base64, context)),
  }
}

async function judgeDocument(
  base64: string,
  { log, scope, verifier }: LogContext,
): Promise<DocumentVerdict> {
  const { roots, allowDebug, revoked } = scope.policy
  const bytes = decodeBase64(base64)
  const digest = hash('sha256', bytes)
  const policy = {
    measurements: 'any',
    mode: 'historical',
    ...(roots && { roots }),
    ...(allowDebug !== undefined && { allowDebug }),
    ...(revoked && { revoked }),
  } as const
  try {
    const facts = await verifier.verify(bytes, policy, new Date(0))
    const endMs = Math.min(...facts.certificates.map(({ notAfterMs }) => notAfterMs))
    const document = decodeAttestationPayload(bytes)
    const code = compareMeasurements(document, scope)
    return {
      digest,
      faults: [...compareConfiguration(document, log), ...code.faults],
      release: code.release,
      validMs: { from: facts.timestampMs - FUTURE_SKEW_MS_DEFAULT, to: endMs },
    }
  } catch (fault) {
    if (!(fault instanceof AttestationError)) throw fault
    const message = `${fault.code}: ${fault.message}`
    return {
      digest,
      faults: [{ code: 'attestation_invalid', message }],
      release: null,
      validMs: null,
    }
  }
}

function compareConfiguration(
  document: AttestationDocument,
  log: ServedLog,
): readonly DocumentFault[] {
  const digest = digestBootConfiguration(log.bootConfiguration)
  if (document.userData !== null && equalBytes(document.userData, digest)) return []
  const message = `the document does not name the log's boot configuration, ${encodeHex(digest)}`
  return [{ code: 'configuration_mismatch', message }]
}

function compareMeasurements(
  document: AttestationDocument,
  { policy }: AuditScope,
): Pick<DocumentVerdict, 'faults' | 'release'> {
  try {
    return { faults: [], release: findExpectedCode(document, policy)?.release ?? null }
  } catch (fault) {
    if (!(fault instanceof AttestationError)) throw fault
    return { faults: [{ code: 'measurements_unexpected', message: fault.message }], release: null }
  }
}

/**
 * A head attestation that passed all checks. `timestampMs`: time of its document, Unix
 * milliseconds.
 */
export type AttestedHead = HeadAttestation & { readonly timestampMs: number }

/** Sizes of a page's attestations: greater than `after`, at most `through`. Null: no limit. */
type PageReach = { readonly after: number | null; readonly through: number | null }

export type AttestationAudit = ReturnType<typeof createAttestationAudit>

/**
 * The returned function gives the valid attestations of a page, by size. It throws GatewayFault if
 * an attestation does not belong to the page.
 */
export function createAttestationAudit({ log, ledger, scope, chain, verifier }: LogContext) {
  let newest: AttestedHead | null = null

  async function checkOne(json: Json, blocks: Blocks | null): Promise<AttestedHead | null> {
    const attestation = tryParse(json)
    if (attestation === null) {
      const message = 'an entry that is not a head attestation'
      ledger.find('head_attestation_invalid', { where: 'heads', message })
      return null
    }
    const where = `attestation of size ${attestation.size}`
    const block = blocks?.byNumber.get(attestation.block_number) ?? null
    const context = {
      attestations: verifier,
      ...(blocks && {
        chain: {
          chainId: blocks.chainId,
          newestBlock: blocks.newest,
          blockHash: block?.hash ?? null,
        },
      }),
    }
    const report = await verifyHeadAttestation(json, log, scope.policy, context)
    reportFaults(report, where, ledger)
    if (report.facts === null) return null
    const attested = { ...attestation, timestampMs: report.facts.timestampMs }
    if (expectsCode(scope.policy)) ledger.pass('measurements')
    if (report.facts.release) ledger.remark('measurements', nameRelease(report.facts.release))
    if (chain !== null) checkBlockTime(attested, block, { where, ledger })
    checkOrder(attested, where)
    return attested
  }

  /** The attestation of a larger log must not be older, because logs only grow. */
  function checkOrder(attested: AttestedHead, where: string): void {
    if (newest !== null && attested.size > newest.size && attested.timestampMs < newest.timestampMs)
      ledger.find('head_attestation_order', {
        where,
        message:
          `made ${isoOf(attested.timestampMs)}, before the attestation of size ${newest.size}, ` +
          `made ${isoOf(newest.timestampMs)}`,
      })
    newest = attested
  }

  return async (page: readonly Json[], reach: PageReach): Promise<readonly AttestedHead[]> => {
    // Each attestation must belong to this page: the audit cannot go back to a smaller tree.
    for (const json of page) checkPlace(tryParse(json), reach)
    const blocks = chain === null ? null : await fetchBlocks(page, chain)
    const held: AttestedHead[] = []
    for (const json of page) {
      const attested = await checkOne(json, blocks)
      if (attested !== null) held.push(attested)
    }
    return held.sort((one, other) => one.size - other.size)
  }
}

function checkPlace(attestation: HeadAttestation | null, { after, through }: PageReach): void {
  if (attestation === null) return
  const { size } = attestation
  if (size > (after ?? -1) && (through === null || size <= through)) return
  throw new GatewayFault('answer_invalid', {
    where: `heads after ${after ?? 'none'}`,
    message:
      `expected attestations of sizes over ${after ?? 'none'} up to ${through ?? 'any'}, got ` +
      `size ${size}`,
  })
}

type Blocks = {
  readonly chainId: number
  readonly newest: number
  readonly byNumber: ReadonlyMap<number, ChainBlock>
}

async function fetchBlocks(page: readonly Json[], chain: ChainSource): Promise<Blocks> {
  const numbers = new Set(page.flatMap((json) => tryParse(json)?.block_number ?? []))
  const byNumber = numbers.size === 0 ? new Map() : await chain.fetchBlocks([...numbers])
  return { chainId: chain.chainId, newest: await chain.fetchNewestBlock(), byNumber }
}

/** The code of a check that is not listed is `head_attestation_invalid`. */
const CODES: Readonly<Partial<Record<HeadAttestationCheckName, FindingCode>>> = {
  'attestation document': 'attestation_invalid',
  'attestation key': 'attestation_swapped',
  head: 'head_attestation_mismatch',
  'block hash': 'head_attestation_mismatch',
  measurements: 'measurements_unexpected',
  'expected configuration': 'configuration_unexpected',
  'block on chain': 'head_attestation_block',
}

function reportFaults({ checks }: HeadAttestationReport, where: string, ledger: Ledger): void {
  const failed = checks.filter(({ outcome }) => outcome === 'failed')
  const foreign = failed.filter(({ name }) => name === 'attestation key')
  // If the document is for another key, all other checks fail too. Then only the key is reported.
  const reported = foreign.length > 0 ? foreign : failed
  findEach(
    ledger,
    where,
    reported.map((check) => [CODES[check.name] ?? 'head_attestation_invalid', check]),
  )
}

function checkBlockTime(
  { timestampMs, block_number: number }: AttestedHead,
  block: ChainBlock | null,
  { where, ledger }: { readonly where: string; readonly ledger: Ledger },
): void {
  if (block === null) return
  const isAfter = timestampMs + FUTURE_SKEW_MS_DEFAULT >= block.timestamp * 1000
  if (isAfter) ledger.pass('blocks of attestations')
  else
    ledger.find('head_attestation_block', {
      where,
      message:
        `made ${isoOf(timestampMs)}, before block ${number}, which was made ` +
        `${isoOf(block.timestamp * 1000)}`,
    })
}

function tryParse(json: Json): HeadAttestation | null {
  return orNull(() => parseHeadAttestation(json), FormatError)
}

/** The code of a check that is not listed is `boot_statement_invalid`. */
const BOOT_CODES: Readonly<Partial<Record<BootStatementCheckName, FindingCode>>> = {
  'attestation document': 'attestation_invalid',
  'attestation key': 'attestation_swapped',
  measurements: 'measurements_unexpected',
  'expected configuration': 'configuration_unexpected',
}

/**
 * Checks the statement that the log's enclave made before its first leaf, and records the heads
 * that the statement names. Throws GatewayFault.
 */
export async function auditBootStatement(audited: LogContext): Promise<void> {
  const { log, gateway, ledger, scope, verifier, recover, named } = audited
  const json = await gateway.fetchBootStatement(log.notary)
  if (json === null) return ledger.lack('boot statement', 'the gateway serves no boot statement')
  const context = { attestations: verifier, recover }
  const { checks, facts } = await verifyBootStatement(json, log, scope.policy, context)
  const failed = checks.filter(({ outcome }) => outcome === 'failed')
  findEach(
    ledger,
    'boot statement',
    failed.map((check) => [BOOT_CODES[check.name] ?? 'boot_statement_invalid', check]),
  )
  if (facts === null)
    return ledger.skip('boot statement', 'the statement that is served is not genuine')
  ledger.pass('boot statement')
  for (const head of facts.heads) named.add(head, log.notary)
}

/** Adds one finding for each code. The finding names all failed checks with this code. */
function findEach(
  ledger: Ledger,
  where: string,
  failed: readonly (readonly [FindingCode, Check<string>])[],
): void {
  for (const code of new Set(failed.map(([code]) => code)))
    ledger.find(code, {
      where,
      message: failed
        .filter(([other]) => other === code)
        .map(([, { name, detail }]) => `${name}: ${detail}`)
        .join('; '),
    })
}
