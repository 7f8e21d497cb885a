import { expect, it } from 'vitest'
import { judgeRun } from '../conformance/judge.ts'
import { readManifest } from '../conformance/manifest.ts'
import { runCase } from '../conformance/run-case.ts'

/**
 * A test for each published case with such a name: our command line finds what the manifest says.
 * There must be at least `countMin`.
 */
export function judgePublished(names: RegExp, countMin: number): void {
  const cases = readManifest().cases.filter(({ name }) => names.test(name))

  it.each(cases.map((one) => [one.name, one] as const))(
    'the published case %s is judged as the manifest says',
    async (_, one) => {
      expect(judgeRun(one, await runCase(one), 'report').differences).toEqual([])
    },
  )

  it(`there are published cases of the form ${names}`, () => {
    expect(cases.length).toBeGreaterThanOrEqual(countMin)
  })
}
