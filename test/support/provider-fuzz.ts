import { isDeepStrictEqual } from 'node:util'
import {
  type DstackJudgement,
  verifyDstackLog,
} from '#attestation/providers/dstack/verify-dstack-log.ts'
import { requireChecks } from '#attestation/providers/provider-checks.ts'
import { ProviderEvidenceError } from '#attestation/providers/provider-error.ts'
import type { TdxCollateral } from '#attestation/providers/tdx/collateral.ts'
import {
  type TdxEvidence,
  type TdxJudgement,
  verifyTdxQuote,
} from '#attestation/providers/tdx/verify-tdx-quote.ts'
import { MADE_AT } from './nitro-builder/development-pki.ts'
import { byteMutations } from './nitro-fuzz/byte-mutations.ts'
import { createRandom, type Random } from './nitro-fuzz/random.ts'
import { buildDstackEvidence, DSTACK_POLICY } from './provider-builder/dstack-builder.ts'
import { buildTdxEvidence, TDX_POLICY } from './provider-builder/tdx-builder.ts'

/** What happened to mutated evidence. */
export type ProviderFuzzReport = {
  readonly refused: ReadonlyMap<string, number>
  /** Evidence that was accepted although it says something else, or threw. Should be empty. */
  readonly failures: readonly string[]
}

/** Judges `count` mutated quotes, collaterals and event logs made from `seed`. */
export async function fuzzProviderEvidence(
  count: number,
  seed: number,
): Promise<ProviderFuzzReport> {
  const random = createRandom(seed)
  const refused = new Map<string, number>()
  const failures: string[] = []
  for (let done = 0; done < count; done += AT_ONCE) {
    const mutants = Array.from({ length: Math.min(AT_ONCE, count - done) }, () =>
      random.below(5) === 0 ? mutateLog(random) : mutateTdx(random),
    )
    await Promise.all(mutants.map(judgeMutant))
  }
  return { refused, failures }

  async function judgeMutant({ name, judge, isSame }: Mutant): Promise<void> {
    try {
      const { facts, checks } = await judge()
      requireChecks(checks)
      if (!isSame(facts)) failures.push(`accepted: ${name}`)
    } catch (fault) {
      if (!(fault instanceof ProviderEvidenceError)) failures.push(`${name} threw ${fault}`)
      else refused.set(fault.code, (refused.get(fault.code) ?? 0) + 1)
    }
  }
}

const AT_ONCE = 8

type Mutant = {
  readonly name: string
  readonly judge: () => Promise<TdxJudgement | DstackJudgement>
  /**
   * True for the facts of the evidence without a mutation: bytes after a quote's end are ignored,
   * and the payload of a boot event is not measured.
   */
  readonly isSame: (facts: unknown) => boolean
}

const tdxSeeds = [
  buildTdxEvidence(),
  buildTdxEvidence({ version: 5 }),
  buildTdxEvidence({ version: 5, tdVersion: '1.5' }),
]

const tdxFacts = new Map<TdxEvidence, unknown>()
for (const seed of tdxSeeds)
  tdxFacts.set(seed, (await verifyTdxQuote(seed, TDX_POLICY, MADE_AT)).facts)

/** The parts of evidence that are bytes, each with how one part is replaced. */
const PARTS: Readonly<
  Record<string, (evidence: TdxEvidence, change: (bytes: Uint8Array) => Uint8Array) => TdxEvidence>
> = {
  quote: ({ quote, collateral }, change) => ({ quote: change(quote), collateral }),
  'TCB info': inCollateral(({ tcbInfo }, change) => ({
    tcbInfo: { ...tcbInfo, signed: new Uint8Array(change(tcbInfo.signed)) },
  })),
  'signature of the QE identity': inCollateral(({ qeIdentity }, change) => ({
    qeIdentity: { ...qeIdentity, signature: new Uint8Array(change(qeIdentity.signature)) },
  })),
  'issuer chain': inCollateral(({ tcbInfo }, change) => ({
    tcbInfo: {
      ...tcbInfo,
      issuerChain: Buffer.from(change(Buffer.from(tcbInfo.issuerChain))).toString('latin1'),
    },
  })),
  'root CRL': inCollateral(({ rootCrl }, change) => ({ rootCrl: change(rootCrl) })),
  'PCK CRL': inCollateral(({ pckCrl }, change) => ({ pckCrl: change(pckCrl) })),
}

function inCollateral(
  replace: (
    collateral: TdxCollateral,
    change: (bytes: Uint8Array) => Uint8Array,
  ) => Partial<TdxCollateral>,
) {
  return (
    { quote, collateral }: TdxEvidence,
    change: (bytes: Uint8Array) => Uint8Array,
  ): TdxEvidence => ({
    quote,
    collateral: collateral && { ...collateral, ...replace(collateral, change) },
  })
}

function mutateTdx(random: Random): Mutant {
  const seed = random.pick(tdxSeeds)
  const part = random.below(2) === 0 ? 'quote' : random.pick(Object.keys(PARTS))
  const mutation = random.pick(Object.keys(byteMutations))
  const evidence = PARTS[part]?.(seed, (bytes) => mutated(bytes, mutation, random)) ?? seed
  return {
    name: `${mutation} in ${part} of TD`,
    judge: async () => await verifyTdxQuote(evidence, TDX_POLICY, MADE_AT),
    isSame: (facts) => isDeepStrictEqual(facts, tdxFacts.get(seed)),
  }
}

const logSeed = buildDstackEvidence()
const { facts: logFacts } = await verifyDstackLog(logSeed, DSTACK_POLICY)

function mutateLog(random: Random): Mutant {
  const mutation = random.pick(Object.keys(byteMutations))
  const eventLog = mutated(logSeed.eventLog, mutation, random)
  return {
    name: `${mutation} in event log`,
    judge: async () => await verifyDstackLog({ ...logSeed, eventLog }, DSTACK_POLICY),
    isSame: (facts) => isDeepStrictEqual(facts, logFacts),
  }
}

/** Different bytes: some mutations change nothing. */
function mutated(bytes: Uint8Array, name: string, random: Random): Uint8Array {
  for (;;) {
    const changed = byteMutations[name]?.(bytes, random) ?? bytes
    if (Buffer.compare(changed, bytes) !== 0) return changed
  }
}
