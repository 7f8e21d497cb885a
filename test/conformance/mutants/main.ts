import { judgeRun, type Result, type Strictness } from '../judge.ts'
import { type ConformanceCase, readManifest } from '../manifest.ts'
import { runCase } from './run-cases.ts'
import { activate, type MutantKey, takeReached } from './switch.ts'

/*
 * Runs our own verifier through all cases. Then, for each check, runs it with that check skipped on
 * the cases that reach the check; `--baseline` leaves this part out. Prints one JSON object. Run
 * with node --import ./hook.ts.
 */

/** A mutant, and the cases that find it. */
export type MutantReport = {
  readonly key: MutantKey
  /** The kind of the cases that reach it: each kind has its own report. */
  readonly kind: 'bundle' | 'record' | 'document'
  /** A case whose verdict or exit code differs; null without one. */
  readonly byVerdict: string | null
  /** A case whose report differs; null without one. */
  readonly byReport: string | null
}

/** The printed object. */
export type MutantsOutput = {
  /** Cases in which our verifier does not conform, with no check skipped. */
  readonly different: readonly { readonly name: string; readonly differences: readonly string[] }[]
  readonly mutants: readonly MutantReport[]
}

const { cases } = readManifest()
const reachedBy = new Map<string, ConformanceCase[]>()
const different: { name: string; differences: readonly string[] }[] = []
/**
 * Most cases in which a throw statement is skipped. A mutant that none of them finds is reported as
 * not found. Checks and codes are skipped in all of their cases.
 */
const CASES_OF_THROW_MAX = 24
/** Throws in these sources are skipped only by the code of their refusal. */
const BY_CODE = /^throw attestation\/(nitro|json|eif|release)\//

for (const one of cases) {
  takeReached()
  const { differences } = await judge(one, 'report')
  if (differences.length > 0) different.push({ name: one.name, differences })
  for (const key of takeReached()) {
    const place = `${kindOf(one)} ${key}`
    reachedBy.set(place, [...(reachedBy.get(place) ?? []), one])
  }
}

const mutants: MutantReport[] = []
const isBaseline = process.argv.includes('--baseline')
for (const [place, reaching] of isBaseline ? [] : reachedBy) {
  const [kind = '', ...rest] = place.split(' ')
  const key = rest.join(' ')
  if (BY_CODE.test(key)) continue
  mutants.push({ key, kind: kind as MutantReport['kind'], ...(await findCase(key, reaching)) })
}
const output: MutantsOutput = { different, mutants }
process.stdout.write(`${JSON.stringify(output)}\n`)

async function findCase(
  key: MutantKey,
  reaching: readonly ConformanceCase[],
): Promise<Pick<MutantReport, 'byVerdict' | 'byReport'>> {
  let byReport: string | null = null
  // Cases with few failures find more mutants, so they come first.
  const sorted = reaching.toSorted(
    (one, other) => (one.expect.failed?.length ?? 0) - (other.expect.failed?.length ?? 0),
  )
  const tried = key.startsWith('throw ') ? sorted.slice(0, CASES_OF_THROW_MAX) : sorted
  for (const one of tried) {
    activate(key)
    const { differences } = await judge(one, 'report')
    activate(null)
    if (differences.length > 0) byReport ??= one.name
    if (differences.some((difference) => /^(verdict|exit code)/.test(difference)))
      return { byVerdict: one.name, byReport }
    // A check that was not made changes the verdict only when it is the only open one.
    if (byReport !== null && key.startsWith('open ')) break
  }
  return { byVerdict: null, byReport }
}

async function judge(one: ConformanceCase, strictness: Strictness): Promise<Result> {
  return judgeRun(one, await runCase(one), strictness)
}

function kindOf({ kind }: ConformanceCase): MutantReport['kind'] {
  return kind === 'bundle' || kind === 'document' ? kind : 'record'
}
