import type { BundleSource } from '../evidence/bundle-source.ts'
import type { BundleJudgement } from './judge-bundle.ts'
import { printable, quoted } from './printable.ts'

/**
 * Says where evidence claims to come from: `https://gateway.example (“Acme”; releases at
 * https://…)`. Escapes text from outside. A name is in quotation marks, so it cannot look like
 * words of the report. Does NOT prove that it comes from there: anyone can write a source into
 * evidence.
 */
export function saySource(source: BundleSource): string {
  const { releases } = source
  const list = releases === undefined ? [] : [`releases at ${printable(releases)}`]
  return joinNames([...runnerOf(source), ...list])
}

/**
 * Says where to get missing expectations, and warns that anyone can write a source into a bundle.
 * Null without a source, or if no expectations are missing.
 */
export function adviseOnSource({ verdict, report }: BundleJudgement): string | null {
  const { source, open } = report
  const isUnexpected = open.includes('measurements') || open.includes('expected configuration')
  if (source === null || verdict !== 'incomplete' || !isUnexpected) return null
  const runner = runnerOf(source)
  const whom =
    runner.length === 0
      ? `the publisher of the releases at ${printable(source.releases ?? '')}`
      : `${joinNames(runner)} as its source`
  return (
    `The evidence names ${whom}, and anyone can write that. If it is your vendor, take policy.json ` +
    'from where you know the vendor, and not from an address in the evidence.'
  )
}

function runnerOf({ gateway, operator }: BundleSource): readonly string[] {
  return [
    ...(gateway === undefined ? [] : [printable(gateway)]),
    ...(operator === undefined ? [] : [quoted(operator)]),
  ]
}

function joinNames([name = '', ...more]: readonly string[]): string {
  return more.length === 0 ? name : `${name} (${more.join('; ')})`
}
