import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { DSTACK_CHECKS, DSTACK_CODES } from '#attestation/providers/dstack/dstack-codes.ts'
import { EVIDENCE_CHECKS, EVIDENCE_CODES } from '#attestation/providers/evidence/evidence-codes.ts'
import { NVIDIA_CODES, NVIDIA_RULES } from '#attestation/providers/nvidia/gpu-rules.ts'
import { NVIDIA_ROOT_SHA256 } from '#attestation/providers/nvidia/verify-gpu-evidence.ts'
import { SIGSTORE_CHECKS, SIGSTORE_CODES } from '#attestation/providers/sigstore/sigstore-codes.ts'
import { AMD_ROOTS } from '#attestation/providers/snp/policy.ts'
import { SNP_CODES, SNP_RULES } from '#attestation/providers/snp/snp-rules.ts'
import { TDX_CHECKS, TDX_CODES } from '#attestation/providers/tdx/tdx-codes.ts'
import { dstackAcceptances, dstackRefusals } from '../../support/provider-cases/dstack-cases.ts'
import { evidenceRefusals } from '../../support/provider-cases/evidence-cases.ts'
import { gpuAcceptances, gpuRefusals } from '../../support/provider-cases/gpu-cases.ts'
import { nrasAcceptances, nrasRefusals } from '../../support/provider-cases/nras-cases.ts'
import { sigstoreRefusals } from '../../support/provider-cases/sigstore-cases.ts'
import { snpAcceptances, snpRefusals } from '../../support/provider-cases/snp-cases.ts'
import { tdxAcceptances, tdxRefusals } from '../../support/provider-cases/tdx-cases.ts'

type Kind = {
  readonly page: string
  /** Names of checks, or names by the numbers of rules. */
  readonly rules: Readonly<Record<string, unknown>>
  /** The check or the number of the rule that each code belongs to. */
  readonly codes: Readonly<Record<string, string | number>>
  readonly refusals: readonly { readonly code: string }[]
  readonly accepted?: readonly (string | number)[]
  /** Codes that come from the reader, before any check. */
  readonly elsewhere?: readonly string[]
}

const KINDS: readonly Kind[] = [
  {
    page: 'dstack/rules.md',
    rules: DSTACK_CHECKS,
    codes: DSTACK_CODES,
    refusals: dstackRefusals,
    accepted: dstackAcceptances.map(({ check }) => check),
  },
  {
    page: 'tdx/rules.md',
    rules: TDX_CHECKS,
    codes: TDX_CODES,
    refusals: tdxRefusals,
    accepted: tdxAcceptances.map(({ check }) => check),
  },
  {
    page: 'snp/rules.md',
    rules: SNP_RULES,
    codes: SNP_CODES,
    refusals: snpRefusals,
    accepted: snpAcceptances.map(({ rule }) => rule),
  },
  {
    page: 'nvidia/rules.md',
    rules: NVIDIA_RULES,
    codes: NVIDIA_CODES,
    refusals: [...gpuRefusals, ...nrasRefusals],
    accepted: [...gpuAcceptances, ...nrasAcceptances].map(({ rule }) => rule),
  },
  {
    page: 'sigstore/README.md',
    rules: SIGSTORE_CHECKS,
    codes: SIGSTORE_CODES,
    refusals: sigstoreRefusals,
  },
  {
    page: 'evidence/formats.md',
    rules: EVIDENCE_CHECKS,
    codes: EVIDENCE_CODES,
    refusals: evidenceRefusals,
    elsewhere: ['evidence_size', 'evidence_malformed'],
  },
]

const read = (page: string) =>
  readFileSync(join(import.meta.dirname, '../../../attestation/providers', page), 'utf8')

/** The rows of a page's tables: the first column, the second, and the codes of the last. */
function rowsOf(page: string): readonly (readonly [string, string, readonly string[]])[] {
  const rows = read(page).matchAll(/^\| +([^|`]*?) +\| ([^|]*?) +\|.*?([^|]*)\|$/gm)
  return [...rows].map(([, first = '', second = '', codes = '']) => [
    first,
    second,
    [...(codes.match(/`\w+`/g) ?? [])].map((code) => code.slice(1, -1)),
  ])
}

describe.each(KINDS)('the rules of $page', ({ page, rules, codes, refusals, ...given }) => {
  it(`${page} has a row for each rule with all its codes, and no others`, () => {
    const listed = rowsOf(page)
    for (const [rule, name] of Object.entries(rules)) {
      const row = listed.find(([first]) => first === rule)
      if (/^\d/.test(rule)) expect(row?.[1]).toBe(name)
      const own = Object.keys(codes).filter((code) => String(codes[code]) === rule)
      expect(row?.[2].toSorted(), rule).toEqual(own.toSorted())
    }
    const known = new Set(Object.keys(rules))
    if (page.endsWith('rules.md'))
      expect(listed.filter(([first, , all]) => all.length > 0 && !known.has(first))).toEqual([])
  })

  it(`the cases have a refusal for each code of ${page}, and an acceptance for each rule`, () => {
    const tried = new Set(refusals.map(({ code }) => code))
    const untried = Object.keys(codes).filter((code) => !tried.has(code))
    expect(untried).toEqual(given.elsewhere ?? [])
    if (given.accepted !== undefined)
      expect(new Set(given.accepted.map(String))).toEqual(new Set(Object.keys(rules)))
  })
})

it.each([
  ['nvidia/rules.md', [NVIDIA_ROOT_SHA256]],
  ['snp/rules.md', Object.values(AMD_ROOTS).flat()],
])("%s has the fingerprints of its maker's roots and no others", (page, roots) => {
  expect(read(page).match(/\b[0-9a-f]{64}\b/g)).toEqual(roots.map(encodeHex))
})
