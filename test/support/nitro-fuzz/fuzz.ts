import { createHash } from 'node:crypto'
import { AttestationError } from '#attestation/nitro/attestation-error.ts'
import type { AttestationFacts } from '#attestation/nitro/facts.ts'
import { type AttestationPolicy, AWS_ROOT_SHA256 } from '#attestation/nitro/policy.ts'
import {
  createAttestationVerifier,
  verifyAttestation,
} from '#attestation/nitro/verify-attestation.ts'
import { buildDocument, standardChain } from '../nitro-builder/document-builder.ts'
import { nitroFixtures, readFixture } from '../nitro-fixtures.ts'
import { type Mutant, mutateDocument, twinOf } from './mutate-document.ts'
import { createRandom } from './random.ts'

/** The results of one run's documents. */
export type FuzzReport = {
  /** Refused documents, by code. */
  readonly refused: ReadonlyMap<string, number>
  /** Accepted documents, by the reason why that is right. */
  readonly accepted: ReadonlyMap<string, number>
  /**
   * Documents that were accepted without a reason, threw another error, or were too slow: hex and
   * what happened. Should be empty.
   */
  readonly failures: readonly string[]
}

/** The longest time for one validation, milliseconds. */
const VALIDATION_MS_MAX = 50
const ATTEMPTS_MAX = 3

/**
 * Validates `documents` mutated documents made from `seed`; `onProgress` is called now and then
 * with how many are done.
 */
export async function fuzzAttestation({
  documents,
  seed,
  onProgress = () => undefined,
}: {
  readonly documents: number
  readonly seed: number
  readonly onProgress?: (done: number) => void
}): Promise<FuzzReport> {
  const random = createRandom(seed)
  const seeds = listSeeds()
  const others = seeds.map(({ bytes }) => bytes)
  const verifier = createAttestationVerifier({ chainsMax: 8 })
  const report = {
    refused: new Map<string, number>(),
    accepted: new Map<string, number>(),
    failures: [] as string[],
  }
  for (let done = 0; done < documents; done++) {
    const origin = random.pick(seeds)
    const mutant = mutateDocument({ seed: origin.bytes, others, canSign: origin.canSign }, random)
    // Most runs know the chain already, as a service does; the others verify it again.
    const verify = random.below(10) === 0 ? verifyAttestation : verifier.verify
    const run = async () => await validate({ mutant, origin, others, verify })
    const { verdict, tookMs } = await timed(run)
    if (verdict.kind === 'failure') report.failures.push(`${mutant.name}: ${verdict.text}`)
    else count(report[verdict.kind], verdict.text)
    if (tookMs > VALIDATION_MS_MAX) report.failures.push(`${mutant.name}: took ${tookMs} ms`)
    if (done % 1000 === 999) onProgress(done + 1)
  }
  return report
}

type Seed = { readonly bytes: Uint8Array; readonly canSign: boolean }
type Verdict = { readonly kind: 'refused' | 'accepted' | 'failure'; readonly text: string }

/**
 * Historical mode reaches every stage for a seed of any age. No expectation is set, because it
 * could hide a fault.
 */
const policy: AttestationPolicy = {
  measurements: 'any',
  mode: 'historical',
  allowDebug: true,
  roots: [AWS_ROOT_SHA256, standardChain.rootSha256],
}

function listSeeds(): readonly Seed[] {
  const built = [
    buildDocument(),
    buildDocument({ indefinite: true }),
    buildDocument({ prefix: 'd2' }),
    buildDocument({ fields: { extra: [1, new Map([['a', [null]]])] } }),
  ]
  const real = nitroFixtures.filter(({ kind }) => kind === 'aws').map(readFixture)
  return [
    ...built.map((bytes) => ({ bytes, canSign: true })),
    ...real.map((bytes) => ({ bytes, canSign: false })),
  ]
}

type Run = {
  readonly mutant: Mutant
  readonly origin: Seed
  readonly others: readonly Uint8Array[]
  readonly verify: typeof verifyAttestation
}

async function validate({ mutant, others, verify }: Run): Promise<Verdict> {
  try {
    const facts = await verify(mutant.bytes, policy, new Date(0))
    const reason = reasonToAccept(mutant, { facts, others })
    return reason === null
      ? { kind: 'failure', text: `accepted ${Buffer.from(mutant.bytes).toString('hex')}` }
      : { kind: 'accepted', text: reason }
  } catch (error) {
    if (error instanceof AttestationError) return { kind: 'refused', text: error.code }
    return {
      kind: 'failure',
      text: `threw ${error} for ${Buffer.from(mutant.bytes).toString('hex')}`,
    }
  }
}

/**
 * The harmless forms: the document unchanged; with or without tag 18; with the signature's twin; or
 * made and signed by the leaf's key, with only the seeds' certificates, which is a genuine new
 * document.
 */
function reasonToAccept(
  { bytes, isSigned }: Mutant,
  { facts, others }: { readonly facts: AttestationFacts; readonly others: readonly Uint8Array[] },
): string | null {
  if (others.some((other) => Buffer.compare(other, bytes) === 0)) return 'unchanged'
  const untagged = (document: Uint8Array) =>
    document[0] === 0xd2 ? document.subarray(1) : document
  if (others.some((other) => Buffer.compare(untagged(other), untagged(bytes)) === 0))
    return 'tag 18'
  if (others.some((other) => Buffer.compare(twinOf(other), bytes) === 0)) return 'twin signature'
  const known = new Set(
    [...standardChain.cabundle, standardChain.certificate].map((der) => digest(der)),
  )
  const isGenuine = facts.certificates.every(({ sha256 }) =>
    known.has(Buffer.from(sha256).toString('hex')),
  )
  return isSigned && isGenuine ? 'signed by the leaf' : null
}

function digest(der: Uint8Array): string {
  return createHash('sha256').update(der).digest('hex')
}

/** In CPU time of this thread. A slow run is tried again: the first has code to compile. */
async function timed(run: () => Promise<Verdict>): Promise<{ verdict: Verdict; tookMs: number }> {
  let tookMs = Number.POSITIVE_INFINITY
  let verdict: Verdict = { kind: 'failure', text: 'not run' }
  for (let attempt = 0; attempt < ATTEMPTS_MAX && tookMs > VALIDATION_MS_MAX; attempt++) {
    const start = process.threadCpuUsage()
    verdict = await run()
    const { user, system } = process.threadCpuUsage(start)
    tookMs = Math.min(tookMs, (user + system) / 1000)
  }
  return { verdict, tookMs }
}

function count(counts: Map<string, number>, key: string): void {
  counts.set(key, (counts.get(key) ?? 0) + 1)
}
