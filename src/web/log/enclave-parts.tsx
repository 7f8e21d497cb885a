import type { BootHead } from '#attestation/evidence/boot-statement.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import type { BlockExplorer } from '../kit/block-explorer.tsx'
import { Development } from '../kit/notices.tsx'
import type { DescribedLog, ServedEnclave } from './answers.ts'
import { BootPanel } from './boot-panel.tsx'
import { EnclavePanel } from './enclave-panel.tsx'
import { LogExpectedPanel, useExpected } from './expected-panel.tsx'
import { TimePanel } from './time-panel.tsx'

/** Checks a log's enclave against the reader's policy. */
export function EnclaveParts({
  log,
  enclave,
  boot,
  attestations,
  explorer,
}: {
  readonly log: DescribedLog
  readonly enclave: ServedEnclave | null
  readonly boot: { readonly statement: JsonObject; readonly heads: readonly BootHead[] } | null
  readonly attestations: readonly Json[]
  readonly explorer: BlockExplorer
}) {
  const expected = useExpected()
  const { policy, isDevelopment } = expected
  if (policy === null) return null
  return (
    <Development.Provider value={isDevelopment}>
      <EnclavePanel log={log} enclave={enclave} policy={policy} />
      <LogExpectedPanel expected={expected} />
      <BootPanel log={log} boot={boot} policy={policy} />
      <TimePanel log={log} attestations={attestations} explorer={explorer} policy={policy} />
    </Development.Provider>
  )
}
