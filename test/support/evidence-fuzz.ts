import { isDeepStrictEqual } from 'node:util'
import {
  type KeptResponse,
  type ProviderEvidence,
  writeProviderEvidence,
} from '#attestation/providers/evidence/evidence-document.ts'
import { parseProviderPolicy } from '#attestation/providers/evidence/provider-policy.ts'
import {
  type ProviderFacts,
  verifyProviderEvidence,
} from '#attestation/providers/evidence/verify-provider-evidence.ts'
import { requireChecks } from '#attestation/providers/provider-checks.ts'
import { ProviderEvidenceError } from '#attestation/providers/provider-error.ts'
import { MADE_AT } from './nitro-builder/development-pki.ts'
import { byteMutations } from './nitro-fuzz/byte-mutations.ts'
import { createRandom, type Random } from './nitro-fuzz/random.ts'
import { type BuiltKind, buildProviderEvidence } from './provider-builder/evidence-builder.ts'

/** The results of a run. */
export type EvidenceFuzzReport = {
  /** Refused evidence, by the code of its first fault. */
  readonly refused: ReadonlyMap<string, number>
  /** Evidence that was accepted although it says something else, or threw. Should be empty. */
  readonly failures: readonly string[]
}

const KINDS: readonly BuiltKind[] = [
  'tinfoil v2',
  'tinfoil v3 SNP',
  'tinfoil v3 TDX',
  'dstack',
  'aci',
  'nitro',
]

const AT_ONCE = 8
const LONG_CHARACTERS = 2000

/** Judges `count` mutated evidences of all kinds, made from `seed`. */
export async function fuzzEvidence(count: number, seed: number): Promise<EvidenceFuzzReport> {
  const random = createRandom(seed)
  const refused = new Map<string, number>()
  const failures: string[] = []
  const seeds = await Promise.all(KINDS.map(createSeed))
  for (let done = 0; done < count; done += AT_ONCE) {
    const mutants = Array.from({ length: Math.min(AT_ONCE, count - done) }, () => {
      const one = random.pick(seeds)
      return { one, ...mutate(one.evidence, random) }
    })
    await Promise.all(
      mutants.map(async ({ one, name, bytes }) => {
        try {
          const { facts, checks } = await verifyProviderEvidence(bytes, one.policy, MADE_AT)
          requireChecks(checks)
          if (!isDeepStrictEqual(provenOf(facts), one.proven))
            failures.push(`accepted: ${name} of ${one.kind}, near ${done} of seed ${seed}`)
        } catch (fault) {
          if (fault instanceof ProviderEvidenceError)
            refused.set(fault.code, (refused.get(fault.code) ?? 0) + 1)
          else failures.push(`${name} of ${one.kind} threw ${fault}, near ${done} of seed ${seed}`)
        }
      }),
    )
  }
  return { refused, failures }
}

async function createSeed(kind: BuiltKind) {
  const { evidence, policy: file } = buildProviderEvidence(kind)
  const policy = parseProviderPolicy(Buffer.from(JSON.stringify(file)))
  const judged = await verifyProviderEvidence(writeProviderEvidence(evidence), policy, MADE_AT)
  requireChecks(judged.checks)
  return { kind, evidence, policy, proven: provenOf(judged.facts) }
}

/** What the hardware proves. The collector states the rest: its clock, and the block's number. */
function provenOf(facts: ProviderFacts | null): object | null {
  return facts && { ...facts, digest: '', fetchedAtMs: 0, block: facts.block?.hash ?? null }
}

function mutate(evidence: ProviderEvidence, random: Random) {
  const depth = random.below(10)
  if (depth < 2) return mutated(writeProviderEvidence(evidence), 'evidence', random)
  const list = random.below(2) === 0 ? 'responses' : 'collateral'
  const answers = evidence[list].length > 0 ? list : 'responses'
  const at = random.below(evidence[answers].length)
  const answer = evidence[answers][at]
  if (!answer) throw new Error('expected an answer')
  const { name, bytes } =
    depth < 6 ? mutated(answer.body, answers, random) : mutateInside(answer, random)
  const changed = { ...answer, body: new Uint8Array(bytes) }
  const whole = { ...evidence, [answers]: evidence[answers].with(at, changed) }
  return { name, bytes: writeProviderEvidence(whole) }
}

/** Replaces one value of an answer that is JSON: the bytes of base64 or hex, or the whole value. */
function mutateInside(answer: KeptResponse, random: Random) {
  const root = { value: parsed(answer.body) }
  if (root.value === null) return mutated(answer.body, 'collateral', random)
  const places = listPlaces(root)
  // Quotes, reports and documents: each is one of hundreds of values.
  const long = places.filter(({ holder, key }) => String(holder[key]).length > LONG_CHARACTERS)
  const { holder, key } = random.pick(long.length > 0 && random.below(2) === 0 ? long : places)
  const before = holder[key]
  const wild = random.pick([null, true, -1, 2 ** 53, '', '00', [], {}, 'x'.repeat(300)])
  holder[key] = random.below(4) === 0 ? wild : mutateValue(before, random)
  const text = JSON.stringify(root.value)
  return { name: `${key} inside`, bytes: Buffer.from(text) }
}

function parsed(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(bytes).toString())
  } catch {
    return null
  }
}

type Place = { readonly holder: Record<string, unknown>; readonly key: string }

function listPlaces(holder: object): readonly Place[] {
  return Object.entries(holder).flatMap(([key, value]) => [
    { holder: holder as Record<string, unknown>, key },
    ...(typeof value === 'object' && value !== null ? listPlaces(value) : []),
  ])
}

function mutateValue(value: unknown, random: Random): unknown {
  if (typeof value === 'number') return value + random.pick([-1, 1, 1e9])
  if (typeof value !== 'string' || value === '') return value
  const encoding = /^(?:[0-9a-f]{2})+$/.test(value)
    ? 'hex'
    : /^[A-Za-z0-9+/]{8,}={0,2}$/.test(value)
      ? 'base64'
      : 'utf8'
  return Buffer.from(mutated(Buffer.from(value, encoding), '', random).bytes).toString(encoding)
}

/** Different bytes: some mutations change nothing. */
function mutated(bytes: Uint8Array, where: string, random: Random) {
  for (;;) {
    const [name, mutation] = random.pick(Object.entries(byteMutations))
    const changed = bytes.length === 0 ? random.bytes(1) : mutation(bytes, random)
    if (Buffer.compare(changed, bytes) !== 0) return { name: `${name} in ${where}`, bytes: changed }
  }
}
