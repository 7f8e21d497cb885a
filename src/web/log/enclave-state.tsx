import { State } from '../kit/notices.tsx'
import { Hex } from '../kit/values.tsx'
import type { ServedEnclave } from './answers.ts'

/** Shows whether the gateway uses the enclave of a log, and which code its document states. */
export function EnclaveState({
  enclave,
  code,
}: {
  /** Null if the gateway does not use the enclave: it may still run. */
  readonly enclave: Pick<ServedEnclave, 'status'> | null
  /** PCR0, hex, from the enclave's document. Null when unknown. */
  readonly code: string | null
}) {
  return (
    <>
      {enclave === null ? (
        <State tone="open">not in use</State>
      ) : enclave.status === 'in_use' ? (
        <State tone="good">in use</State>
      ) : (
        <State tone="warn">draining</State>
      )}
      {code !== null && (
        <>
          <br />
          {/^0+$/.test(code) ? (
            'debug mode: not measured'
          ) : (
            <>
              PCR0 <Hex value={code} digits={8} />
            </>
          )}
        </>
      )}
    </>
  )
}
