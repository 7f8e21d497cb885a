import type { Mutant } from './operators.ts'

/** Seeded faults that change nothing that anybody could see, each judged by a reader. */
const EQUIVALENT: readonly {
  readonly file: string
  readonly rule: Mutant['rule']
  /** The text that the fault replaces. */
  readonly text: string
  readonly reason: string
}[] = []

/** The reason why no test can find this fault, or null. */
export function whyEquivalent({ file, rule, start, end }: Mutant, source: string): string | null {
  const text = source.slice(start, end)
  const judged = EQUIVALENT.find(
    (one) => one.file === file && one.rule === rule && one.text === text,
  )
  return judged?.reason ?? null
}
