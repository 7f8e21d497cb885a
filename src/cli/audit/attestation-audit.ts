import { FormatError } from '../../../attestation/errors.ts'
import { type HeadAttestation, parseHeadAttestation } from '../../../attestation/evidence/head-attestation.ts'
import { expectsCode } from '../../../attestation/evidence/policy.ts'
import {
  type HeadAttestationCheckName,
  type HeadAttestationReport,
  verifyHeadAttestation,
} from '../../../attestation/evidence/verify-head-attestation.ts'
import type { Json } from '../../../attestation/json/value.ts'
import { FUTURE_SKEW_MS_DEFAULT } from '../../../attestation/nitro/policy.ts'
import type { AttestationVerifier } from '../../../attestation/nitro/verify-attestation.ts'
import { nameRelease } from '../../../attestation/release/accepted-releases.ts'
import type { ServedLog } from './answers.ts'
import type { ChainBlock, ChainSource } from './chain-source.ts'
import type { AuditScope } from './expectations.ts'
import type { FindingCode } from './findings.ts'
import { GatewayFault } from './gateway-fault.ts'
import type { Ledger } from './ledger.ts'
import { isoOf } from './timeline.ts'

/** A head attestation that holds, and when its document was made, Unix milliseconds. */
export type AttestedHead = HeadAttestation & { readonly timestampMs: number }

/** Checks the head attestations of one log, in the order in which they are served. */
export type AttestationAudit = {
  /** Those of a page that hold, by size. Throws GatewayFault when one does not belong to the page. */
  check(page: readonly Json[], reach: PageReach): Promise<readonly AttestedHead[]>
}

/** Sizes of a page: over `after` (null: all) up to `through` (null: all). */
export type PageReach = { readonly after: number | null; readonly through: number | null }

/** Gives the audit of the head attestations of `log`. */
export function createAttestationAudit(
  log: ServedLog,
  given: {
    readonly ledger: Ledger
    readonly scope: AuditScope
    readonly chain: ChainSource | null
    readonly verifier: AttestationVerifier
  },
): AttestationAudit {
  const { ledger, scope, chain, verifier } = given
  let newest: AttestedHead | null = null

  async function checkOne(json: Json, blocks: Blocks | null): Promise<AttestedHead | null> {
    const attestation = parse(json, ledger)
    if (attestation === null) return null
    const where = `attestation of size ${attestation.size}`
    const block = blocks?.byNumber.get(attestation.block_number) ?? null
    const context = {
      attestations: verifier,
      ...(blocks && {
        chain: { chainId: blocks.chainId, newestBlock: blocks.newest, blockHash: block?.hash ?? null },
      }),
    }
    const report = await verifyHeadAttestation(json, log, scope.policy, context)
    reportFaults(report, where, ledger)
    if (report.facts === null) return null
    const attested = { ...attestation, timestampMs: report.facts.timestampMs }
    if (expectsCode(scope.policy)) ledger.pass('measurements')
    if (report.facts.release) ledger.note('measurements', nameRelease(report.facts.release))
    if (chain !== null) checkBlockTime(attested, block, { where, ledger })
    checkOrder(attested, where)
    return attested
  }

  /** More leaves come later; whoever shows an older document for them turned time around. */
  function checkOrder(attested: AttestedHead, where: string): void {
    if (newest !== null && attested.size > newest.size && attested.timestampMs < newest.timestampMs)
      ledger.find('head_attestation_order', {
        where,
        message: `made ${isoOf(attested.timestampMs)}, before the one of size ${newest.size}, made ${isoOf(newest.timestampMs)}`,
      })
    newest = attested
  }

  return {
    async check(page, reach) {
      // Once the walk is past a size, there is no tree left to compare it with.
      for (const json of page) checkPlace(tryParse(json), reach)
      const blocks = chain === null ? null : await fetchBlocks(page, chain)
      const held: AttestedHead[] = []
      for (const json of page) {
        const attested = await checkOne(json, blocks)
        if (attested !== null) held.push(attested)
      }
      return held.sort((one, other) => one.size - other.size)
    },
  }
}

function checkPlace(attestation: HeadAttestation | null, { after, through }: PageReach): void {
  if (attestation === null) return
  const { size } = attestation
  if (size > (after ?? -1) && (through === null || size <= through)) return
  throw new GatewayFault('answer_invalid', {
    where: `heads after ${after ?? 'none'}`,
    message: `expected attestations of sizes over ${after ?? 'none'} up to ${through ?? 'any'}, got one of size ${size}`,
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

/** Which finding a failed check is. Those not named here mean that the attestation is none. */
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
  // Of a document of another key, nothing else can be right.
  const told = foreign.length > 0 ? foreign : failed
  const byCode = Map.groupBy(told, ({ name }) => CODES[name] ?? 'head_attestation_invalid')
  for (const [code, of] of byCode) {
    const message = of.map(({ name, detail }) => `${name}: ${detail}`).join('; ')
    ledger.find(code, { where, message })
  }
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
      message: `made ${isoOf(timestampMs)}, before block ${number}, which is of ${isoOf(block.timestamp * 1000)}`,
    })
}

function parse(json: Json, ledger: Ledger): HeadAttestation | null {
  const attestation = tryParse(json)
  if (attestation === null)
    ledger.find('head_attestation_invalid', {
      where: 'heads',
      message: 'an entry that is no head attestation',
    })
  return attestation
}

function tryParse(json: Json): HeadAttestation | null {
  try {
    return parseHeadAttestation(json)
  } catch (fault) {
    if (fault instanceof FormatError) return null
    throw fault
  }
}
