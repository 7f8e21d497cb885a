import type { BootHead } from '../../../attestation/evidence/boot-statement.ts'
import {
  type BootStatementCheckName,
  verifyBootStatement,
} from '../../../attestation/evidence/verify-boot-statement.ts'
import type { AttestationVerifier } from '../../../attestation/nitro/verify-attestation.ts'
import { recoverPoint } from '../../verified/check-batch.ts'
import type { ServedLog } from './answers.ts'
import type { AuditScope } from './expectations.ts'
import type { FindingCode } from './findings.ts'
import type { Gateway } from './gateway.ts'
import type { Ledger } from './ledger.ts'

/** Most named heads, of different logs and sizes, that are kept until all logs were walked. */
const NAMED_HEADS_MAX = 100_000

/** Heads that enclaves were shown when they began, each once. */
export type NamedHeads = {
  /** `by`: notary of the enclave that states it. */
  add(head: BootHead, by: string): void
  list(): readonly NamedHead[]
  /** Whether there were more than NAMED_HEADS_MAX. */
  isCut(): boolean
}

/** A head that an enclave was shown. `by`: notary of that enclave. */
export type NamedHead = BootHead & { readonly by: string }

/** Gives an empty collection. */
export function collectNamedHeads(): NamedHeads {
  const heads = new Map<string, NamedHead>()
  let isCut = false
  return {
    add(head, by) {
      const key = `${head.notary} ${head.size} ${head.root}`
      if (heads.has(key)) return
      if (heads.size < NAMED_HEADS_MAX) heads.set(key, { ...head, by })
      else isCut = true
    },
    list: () => [...heads.values()],
    isCut: () => isCut,
  }
}

/**
 * Which finding a failed check is. Those not named here mean that the statement is none of this
 * log.
 */
const CODES: Readonly<Partial<Record<BootStatementCheckName, FindingCode>>> = {
  'attestation document': 'attestation_invalid',
  'attestation key': 'attestation_swapped',
  measurements: 'measurements_unexpected',
  'expected configuration': 'configuration_unexpected',
}

/**
 * Checks what the enclave of a log stated before its first leaf, and notes the heads that it names.
 * Throws GatewayFault.
 */
export async function auditBootStatement(
  log: ServedLog,
  given: {
    readonly gateway: Pick<Gateway, 'fetchBootStatement'>
    readonly ledger: Ledger
    readonly scope: AuditScope
    readonly verifier: AttestationVerifier
    readonly named: NamedHeads
  },
): Promise<void> {
  const { gateway, ledger, scope, verifier, named } = given
  const json = await gateway.fetchBootStatement(log.notary)
  if (json === null) return ledger.lack('boot statement', 'the gateway serves none')
  const context = { attestations: verifier, recover: recoverPoint }
  const { checks, facts } = await verifyBootStatement(json, log, scope.policy, context)
  const failed = checks.filter(({ outcome }) => outcome === 'failed')
  const byCode = Map.groupBy(failed, ({ name }) => CODES[name] ?? 'boot_statement_invalid')
  for (const [code, of] of byCode) {
    const message = of.map(({ name, detail }) => `${name}: ${detail}`).join('; ')
    ledger.find(code, { where: 'boot statement', message })
  }
  if (facts === null) return ledger.skip('boot statement', 'the one that is served is not genuine')
  ledger.pass('boot statement')
  for (const head of facts.heads) named.add(head, log.notary)
}
