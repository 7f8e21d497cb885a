import type { BundleSource } from '../evidence/bundle-source.ts'
import type { BundleJudgement } from './judge-bundle.ts'
import { printable } from './printable.ts'

/**
 * Says where a bundle says that it is from: `https://gateway.example (“Acme”; releases at
 * https://…)`. Text from outside is escaped, and a name is in quotation marks, so that it does not
 * read as words of the report.
 *
 * Does NOT show that it is from there: anyone can write that into a bundle.
 */
export function saySource(source: BundleSource): string {
  const { releases } = source
  const list = releases === undefined ? [] : [`releases at ${printable(releases)}`]
  return joinNames([...runnerOf(source), ...list])
}

/**
 * Says whom to ask for expectations, and that the answer has to be compared: a sentence. Null where
 * the bundle says nothing of it, or the expectations are not what is missing.
 */
export function adviseOnSource({ verdict, open, report }: BundleJudgement): string | null {
  const { source } = report
  const isUnexpected = open.includes('measurements') || open.includes('expected configuration')
  if (source === null || verdict !== 'consistent' || !isUnexpected) return null
  const runner = runnerOf(source)
  const whom =
    runner.length === 0
      ? `who publishes the releases at ${printable(source.releases ?? '')}`
      : `who runs ${joinNames(runner)}`
  return `Ask ${whom} for expect.json, and compare what you get with what they publish elsewhere: the bundle names them, and that was not checked.`
}

function runnerOf({ gateway, operator }: BundleSource): readonly string[] {
  return [
    ...(gateway === undefined ? [] : [printable(gateway)]),
    ...(operator === undefined ? [] : [`“${printable(operator)}”`]),
  ]
}

function joinNames([name = '', ...more]: readonly string[]): string {
  return more.length === 0 ? name : `${name} (${more.join('; ')})`
}
