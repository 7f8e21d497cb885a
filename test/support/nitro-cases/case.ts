import type { AttestationCode, RuleNumber } from '#attestation/nitro/attestation-error.ts'
import type { AttestationPolicy } from '#attestation/nitro/policy.ts'
import { type CaseTable, casesOf } from '../case-table.ts'
import { MADE_AT } from '../nitro-builder/development-pki.ts'
import { buildDocument, standardChain } from '../nitro-builder/document-builder.ts'

/** The common part of all cases: a document, and how it is verified. */
type Verification = {
  readonly name: string
  readonly document: Uint8Array
  readonly policy?: Partial<AttestationPolicy>
  /** Default MADE_AT. */
  readonly at?: Date
}

/** A document that breaks one rule, and the code of its refusal. */
export type Refusal = Verification & { readonly code: AttestationCode }

/** A document at the edge of a rule that is still accepted. */
export type Acceptance = Verification & { readonly rule: RuleNumber }

type Judged = Uint8Array | Omit<Verification, 'name'>

/** A document without faults, under this policy. */
export function under(
  policy: Partial<AttestationPolicy>,
  at: Pick<Verification, 'at'> = {},
): Omit<Verification, 'name'> {
  return { document: buildDocument(), policy, ...at }
}

/** The documents of a table by code: each alone, or with how it is verified. */
export function refusalsOf(table: CaseTable<AttestationCode, Judged>): readonly Refusal[] {
  return casesOf('code', withDocuments(table))
}

/** The documents of a table by rule. */
export function acceptancesOf(table: CaseTable<RuleNumber, Judged>): readonly Acceptance[] {
  return casesOf('rule', withDocuments(table))
}

function withDocuments<Group extends string | number>(table: CaseTable<Group, Judged>) {
  const open = (one: Judged) => (one instanceof Uint8Array ? { document: one } : one)
  const groups = Object.entries<Readonly<Record<string, Judged>> | undefined>(table)
  return Object.fromEntries(
    groups.map(([group, cases = {}]) => [
      group,
      Object.fromEntries(Object.entries(cases).map(([name, one]) => [name, open(one)])),
    ]),
  ) as CaseTable<Group, Omit<Verification, 'name'>>
}

/** Accepts the builder's documents with any measurements. */
export function policyOf({ policy }: Verification): AttestationPolicy {
  return { measurements: 'any', roots: [standardChain.rootSha256], ...policy }
}

export function timeOf({ at }: Verification): Date {
  return at ?? MADE_AT
}
