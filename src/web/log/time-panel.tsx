import type { BundlePolicy } from '#attestation/evidence/policy.ts'
import {
  type HeadAttestationReport,
  verifyHeadAttestation,
} from '#attestation/evidence/verify-head-attestation.ts'
import { isJsonObject, type Json } from '#attestation/json/value.ts'
import { createAttestationVerifier } from '#attestation/nitro/verify-attestation.ts'
import { type BlockExplorer, BlockLink } from '../kit/block-explorer.tsx'
import { CheckList } from '../kit/check-list.tsx'
import { Busy } from '../kit/notices.tsx'
import { useLoaded } from '../kit/use-loaded.ts'
import { Count, Time } from '../kit/values.tsx'
import { configurationDigestOf, type DescribedLog } from './answers.ts'
import { VerdictState } from './verdict-state.tsx'

/**
 * The enclave's statements about the state of the log, newest first. Each names a block that is
 * older than the statement.
 */
export function TimePanel({
  log,
  attestations,
  explorer,
  policy,
}: {
  readonly log: DescribedLog
  readonly policy: BundlePolicy
  readonly attestations: readonly Json[]
  readonly explorer: BlockExplorer
}) {
  const shown = attestations.toReversed().slice(0, SHOWN_MAX)
  // If the gateway changes a statement, this text changes, and the statements are checked again.
  const text = JSON.stringify(shown)
  const { value } = useLoaded(
    async () => checkAll(log, shown, policy),
    [log.notary, configurationDigestOf(log), text, policy],
  )
  return (
    <section aria-labelledby="times">
      <h2 id="times">Time attestations</h2>
      <p>
        The enclave made each attestation with the hash of a block. Leaves from its size on are
        newer than that block, and the leaves before are older than the document.
      </p>
      {value === null ? (
        <Busy what="Checking the attestations" />
      ) : value.length === 0 ? (
        <p>There are no attestations for the heads above.</p>
      ) : (
        <ul class="plain times">
          {value.map(({ report, given }, at) => (
            <li key={at}>
              <Attested report={report} explorer={explorer} given={given} />
            </li>
          ))}
        </ul>
      )}
    </section>
  )
}

const SHOWN_MAX = 5
const attestations = createAttestationVerifier()

async function checkAll(
  { notary, boot_configuration: bootConfiguration }: DescribedLog,
  given: readonly Json[],
  policy: BundlePolicy,
): Promise<readonly { readonly report: HeadAttestationReport; readonly given: Json }[]> {
  const log = { notary, bootConfiguration }
  const found = []
  for (const json of given)
    found.push({
      report: await verifyHeadAttestation(json, log, policy, { attestations }),
      given: json,
    })
  return found
}

function Attested({
  report,
  given,
  explorer,
}: {
  readonly report: HeadAttestationReport
  /** The statement that the report is about. */
  readonly given: Json
  readonly explorer: BlockExplorer
}) {
  const said = isJsonObject(given) ? given : {}
  return (
    <details class="card">
      <summary>
        <VerdictState verdict={report.verdict} />{' '}
        {typeof said.size === 'number' && (
          <>
            <Count value={said.size} /> leaves
          </>
        )}{' '}
        {typeof said.created_at === 'number' && <Time ms={1_000 * said.created_at} />}
      </summary>
      {typeof said.block_number === 'number' && (
        <p>
          After block <BlockLink number={said.block_number} explorer={explorer} />, says the
          gateway.
        </p>
      )}
      <CheckList checks={report.checks} />
    </details>
  )
}
