import { sign } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import { decodeDer } from '#attestation/nitro/der.ts'
import { parseGpuEvidence } from '#attestation/providers/nvidia/evidence-file.ts'
import { verifyGpuEvidence } from '#attestation/providers/nvidia/verify-gpu-evidence.ts'
import { verifyNrasAnswer } from '#attestation/providers/nvidia/verify-nras-answer.ts'
import { type ProviderCheck, requireChecks } from '#attestation/providers/provider-checks.ts'
import { ProviderEvidenceError } from '#attestation/providers/provider-error.ts'
import { type SnpEvidence, verifySnpReport } from '#attestation/providers/snp/verify-snp-report.ts'
import { sequence } from './nitro-builder/der-encoder.ts'
import { byteMutations, type Mutation } from './nitro-fuzz/byte-mutations.ts'
import { derMutations } from './nitro-fuzz/der-mutations.ts'
import { createRandom, type Random } from './nitro-fuzz/random.ts'
import { buildGpu, GPU_AT, keyAt } from './provider-builder/gpu-builder.ts'
import { buildNras, NRAS_AT, nrasKey, writeToken } from './provider-builder/nras-builder.ts'
import { askKey, pssAlgorithm, pssWith, SNP_AT } from './provider-builder/snp-pki.ts'
import { buildSnp, signReport } from './provider-builder/snp-report-builder.ts'

/** The results of a run. */
export type ProviderFuzzReport = {
  /** Refused evidence, by the code of its first fault. */
  readonly refused: ReadonlyMap<string, number>
  /** Accepted evidence, by the reason why that is right. */
  readonly accepted: ReadonlyMap<string, number>
  /** Evidence that was accepted without a reason, or threw another error. Should be empty. */
  readonly failures: readonly string[]
}

/** One mutated piece of evidence. */
type Trial = {
  /** What was changed. */
  readonly name: string
  /** The genuine key signed the change, so that later checks are reached. */
  readonly isSigned: boolean
  verify(): Promise<{ readonly checks: readonly ProviderCheck[]; readonly established: unknown }>
  /** What the evidence before its change established. */
  readonly genuine: unknown
}

/**
 * Judges `count` mutated pieces of evidence, made from `seed`, and counts the results. Most are
 * signed again by the genuine key: evidence-fuzz.ts has the others.
 */
export async function fuzzProviders(count: number, seed: number): Promise<ProviderFuzzReport> {
  const random = createRandom(seed)
  const trials = [await createSnpTrials(), await createGpuTrials(), await createNrasTrials()]
  const report = {
    refused: new Map<string, number>(),
    accepted: new Map<string, number>(),
    failures: [] as string[],
  }
  for (let done = 0; done < count; done++) {
    const trial = random.pick(trials)(random)
    try {
      const { checks, established } = await trial.verify()
      requireChecks(checks)
      if (isDeepStrictEqual(established, trial.genuine)) add(report.accepted, 'the same facts')
      else if (trial.isSigned) add(report.accepted, 'signed by the genuine key')
      else report.failures.push(`accepted: ${trial.name}, number ${done} of seed ${seed}`)
    } catch (fault) {
      if (fault instanceof ProviderEvidenceError) add(report.refused, fault.code)
      else report.failures.push(`threw ${fault}: ${trial.name}, number ${done} of seed ${seed}`)
    }
  }
  return report
}

type CreateTrial = (random: Random) => Trial

function add(counts: Map<string, number>, key: string): void {
  counts.set(key, (counts.get(key) ?? 0) + 1)
}

function mutate(mutations: Readonly<Record<string, Mutation>>, bytes: Uint8Array, random: Random) {
  const [name, mutation] = random.pick(Object.entries(mutations))
  return { name, bytes: new Uint8Array(mutation(bytes, random)) }
}

async function createSnpTrials(): Promise<CreateTrial> {
  const seeds = [buildSnp(), buildSnp({ version: 5, product: 'Turin' })]
  const judged = await Promise.all(
    seeds.map(async (one) => ({
      ...one,
      genuine: (await verifySnpReport(one.evidence, one.policy, SNP_AT)).facts,
    })),
  )
  return (random) => {
    const { evidence, policy, genuine } = random.pick(judged)
    const isReport = random.below(4) > 0
    const changed = isReport ? signAgain(evidence, random) : { vek: resign(evidence, random) }
    return {
      name: isReport ? 'report' : 'vek',
      isSigned: true,
      genuine,
      verify: async () => {
        const { facts, checks } = await verifySnpReport({ ...evidence, ...changed }, policy, SNP_AT)
        return { checks, established: facts }
      },
    }
  }
}

/** Changes up to three bytes of a report, and signs it by its own key. */
function signAgain(evidence: SnpEvidence, random: Random): Pick<SnpEvidence, 'report'> {
  const report = Buffer.from(evidence.report)
  for (let flips = 1 + random.below(3); flips > 0; flips--) {
    const offset = random.below(0x2a0)
    report[offset] = random.pick([0, 1, 0xff, random.below(256)])
  }
  signReport(report)
  return { report: new Uint8Array(report) }
}

/** Changes the signed part of a VEK certificate, and signs it by the development ASK. */
function resign({ vek }: SnpEvidence, random: Random): Uint8Array {
  const [signed] = decodeDer(new Uint8Array(vek)).children
  const { bytes } = mutate(derMutations, signed?.encoding ?? new Uint8Array(), random)
  return sequence(bytes, pssAlgorithm(), pssWith(askKey)(bytes))
}

async function createGpuTrials(): Promise<CreateTrial> {
  const { evidence, policy } = buildGpu()
  const { facts: genuine } = await verifyGpuEvidence(evidence, policy, GPU_AT)
  return (random) => {
    const { name, bytes } = mutate(byteMutations, evidence.evidence.subarray(0, -96), random)
    const key = { key: keyAt(4).privateKey, dsaEncoding: 'ieee-p1363' } as const
    const signed = Buffer.concat([bytes, sign('sha384', bytes, key)])
    return {
      name: `device, ${name}`,
      isSigned: true,
      genuine,
      verify: async () => {
        const whole = { ...evidence, evidence: new Uint8Array(signed) }
        const { facts, checks } = await verifyGpuEvidence(whole, policy, GPU_AT)
        return { checks, established: facts }
      },
    }
  }
}

async function createNrasTrials(): Promise<CreateTrial> {
  const { evidence, policy } = buildNras()
  const { devices: genuine } = await verifyNrasAnswer(evidence, policy, NRAS_AT)
  return (random) => {
    const part = random.pick(['answer', 'keySet', 'tokens', 'file'] as const)
    const changed =
      part === 'answer' || part === 'keySet'
        ? { [part]: mutate(byteMutations, evidence[part], random).bytes }
        : { answer: writeRandomAnswer(evidence.answer, random) }
    return {
      name: `NRAS, ${part}`,
      isSigned: part === 'tokens',
      genuine,
      verify: async () => {
        if (part === 'file') parseGpuEvidence(mutate(byteMutations, FILE, random).bytes)
        const whole = { ...evidence, ...changed }
        const { devices, checks } = await verifyNrasAnswer(whole, policy, NRAS_AT)
        return { checks, established: devices }
      },
    }
  }
}

/** NVIDIA's JSON of evidence, which is read before a judgement. */
const FILE = new Uint8Array(
  Buffer.from(
    JSON.stringify([
      {
        arch: 'HOPPER',
        certificate: Buffer.from(buildGpu().evidence.certificates).toString('base64'),
        evidence: Buffer.from(buildGpu().evidence.evidence).toString('base64'),
        nonce: '6e'.repeat(32),
      },
    ]),
  ),
)

/** The answer with an overall token of changed claims, by the genuine key. */
function writeRandomAnswer(answer: Uint8Array, random: Random): Uint8Array {
  const [[kind, overall], devices]: [[string, string], unknown] = JSON.parse(
    new TextDecoder().decode(answer),
  )
  const [header = {}, claims = {}] = overall
    .split('.')
    .slice(0, 2)
    .map((part) => JSON.parse(Buffer.from(part, 'base64url').toString()))
  const target = random.below(4) === 0 ? header : claims
  const name = random.pick(Object.keys(target))
  target[name] = random.pick([null, true, 0, -1, 1e300, '', 'none', [], {}, [['DIGEST']], name])
  return new Uint8Array(
    Buffer.from(JSON.stringify([[kind, writeToken(header, claims, nrasKey)], devices])),
  )
}
