import type { BootHead } from '#attestation/evidence/boot-statement.ts'
import type { BundlePolicy } from '#attestation/evidence/policy.ts'
import { verifyBootStatement } from '#attestation/evidence/verify-boot-statement.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { CheckList } from '../kit/check-list.tsx'
import { Busy } from '../kit/notices.tsx'
import { useLoaded } from '../kit/use-loaded.ts'
import { Count, Hex } from '../kit/values.tsx'
import { configurationDigestOf, type DescribedLog } from './answers.ts'
import { VerdictState } from './verdict-state.tsx'

/** What the log's enclave stated about other logs before its log had a leaf. */
export function BootPanel({
  log,
  boot,
  policy,
}: {
  readonly log: DescribedLog
  readonly policy: BundlePolicy
  readonly boot: { readonly statement: JsonObject; readonly heads: readonly BootHead[] } | null
}) {
  return (
    <section aria-labelledby="boot">
      <h2 id="boot">Earlier logs</h2>
      <p>
        When an enclave starts, the gateway shows it the heads of earlier logs, and the enclave
        signs them. So a log that is removed later is still named here.
      </p>
      {boot === null ? (
        <p>The enclave of this log signed no such statement.</p>
      ) : (
        <Statement log={log} policy={policy} statement={boot.statement} heads={boot.heads} />
      )}
    </section>
  )
}

function Statement({
  log,
  statement,
  heads,
  policy,
}: {
  readonly log: DescribedLog
  readonly policy: BundlePolicy
  readonly statement: JsonObject
  readonly heads: readonly BootHead[]
}) {
  const { value } = useLoaded(async () => {
    const { notary, boot_configuration: bootConfiguration } = log
    return verifyBootStatement(statement, { notary, bootConfiguration }, policy)
  }, [configurationDigestOf(log), statement, policy])
  return (
    <>
      {heads.length === 0 ? (
        <p>
          The enclave was shown no heads: there were no earlier logs, or the gateway did not show
          them.
        </p>
      ) : (
        <ul class="plain">
          {heads.slice(0, HEADS_MAX).map(({ notary, size, root }) => (
            <li key={notary}>
              <a class="hex" href={`/log/${notary}`}>
                {notary}
              </a>
              : <Count value={size} /> leaves, root <Hex value={root} digits={8} />
            </li>
          ))}
          {heads.length > HEADS_MAX && <li>and {heads.length - HEADS_MAX} more</li>}
        </ul>
      )}
      {value === null ? (
        <Busy what="Checking the statement" />
      ) : (
        <details class="card">
          <summary>
            The statement: <VerdictState verdict={value.verdict} />
          </summary>
          <CheckList checks={value.checks} />
        </details>
      )}
    </>
  )
}

const HEADS_MAX = 50
