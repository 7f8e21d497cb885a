import { useRef, useState } from 'preact/hooks'
import type { Affidavit } from '#client/index.ts'
import { CheckList } from '../../kit/check-list.tsx'
import { Busy, Development, FaultNotice, State } from '../../kit/notices.tsx'
import { OutsideText } from '../../kit/outside-text.tsx'
import { PolicyNotice } from '../../kit/policy-notice.tsx'
import { givePolicy, usePolicy } from '../../kit/tab-policy.ts'
import { Hex, Time } from '../../kit/values.tsx'
import { bytesOf } from '../../verify/bytes-of.ts'
import {
  addExpectedFile,
  EXPECTED_FILE_BYTES_MAX,
  type ExpectedFile,
  readExpectedFile,
} from '../../verify/expected-files.ts'
import type { FormPolicy } from '../../verify/job.ts'
import { PolicyFault } from '../../verify/policy-fault.ts'
import { adviceFor, type ClientRefusal } from './turn.ts'

/** Whether the gateway has an enclave that the reader expects. */
export type EnclaveConnection =
  | { readonly kind: 'none' }
  | { readonly kind: 'connecting' }
  | {
      readonly kind: 'ready'
      readonly affidavit: Affidavit
      /** True if the connection may depend on another root than AWS's. */
      readonly isDevelopment: boolean
      /** True if the enclave is expected only because a development gateway lists it. */
      readonly isGatewaysWord: boolean
    }
  | { readonly kind: 'refused'; readonly refusal: ClientRefusal }
  | { readonly kind: 'failed'; readonly fault: unknown }

/** Asks which enclaves the reader expects, and shows whether the gateway has them. */
export function ExpectedPanel({
  connection,
  onRetry,
}: {
  readonly connection: EnclaveConnection
  readonly onRetry: () => void
}) {
  const { own, inForce } = usePolicy()
  return (
    <section class="card expected" aria-labelledby="expected-heading">
      <h2 id="expected-heading">Which enclave must answer</h2>
      {inForce.kind !== 'development' && (
        <p>
          You say which enclave you expect. This page checks that the enclave is the expected one,
          and refuses answers from any other. Never take this from the gateway itself.
        </p>
      )}
      {!isSecureContext && (
        <div class="notice bad">
          <p>
            This page came over plain http from another machine, so it cannot use the browser's
            cryptography. Open it over https.
          </p>
        </div>
      )}
      <PolicyNotice isRevocationUsed={false} />
      <ConnectionState connection={connection} onRetry={onRetry} />
      <DropZone own={own} />
      {own.releases.length > 0 && (
        <div class="field">
          <label for="release-keys">
            Keys that sign releases <span class="hint">64 hex digits each, one on each line</span>
          </label>
          <textarea
            id="release-keys"
            class="mono"
            rows={2}
            spellcheck={false}
            value={own.releaseKeys}
            onInput={({ currentTarget }) => givePolicy({ releaseKeys: currentTarget.value })}
          />
        </div>
      )}
    </section>
  )
}

function DropZone({ own }: { readonly own: FormPolicy }) {
  const input = useRef<HTMLInputElement>(null)
  const [isOver, setIsOver] = useState(false)
  const [fault, setFault] = useState<unknown>(null)

  const take = async (given: FileList | null | undefined) => {
    setFault(null)
    try {
      const read = await Promise.all(Array.from(given ?? [], readFile))
      const add = (before: FormPolicy, file: ExpectedFile) => ({
        ...before,
        ...addExpectedFile(before, file),
      })
      givePolicy(read.reduce(add, own))
    } catch (unfit) {
      setFault(unfit)
    }
    if (input.current !== null) input.current.value = ''
  }
  const drop = (event: DragEvent) => {
    event.preventDefault()
    setIsOver(false)
    void take(event.dataTransfer?.files)
  }

  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: one more way beside the field.
    <div
      class={isOver ? 'drop over' : 'drop'}
      onDragOver={(event) => {
        event.preventDefault()
        setIsOver(true)
      }}
      onDragLeave={() => setIsOver(false)}
      onDrop={drop}
    >
      <label for="expected-files">Drop files here, or choose them</label>
      <input
        id="expected-files"
        ref={input}
        type="file"
        multiple
        aria-describedby="expected-hint"
        onChange={({ currentTarget }) => void take(currentTarget.files)}
      />
      <p class="hint" id="expected-hint">
        A signed release, from its publisher. Also: a policy (<code>policy.json</code>),
        measurements, boot configuration, root certificate. They add up, and hold on all pages of
        this tab.
      </p>
      {fault !== null && (
        <FaultNotice fault={fault}>
          {fault instanceof PolicyFault ? fault.advice : undefined}
        </FaultNotice>
      )}
    </div>
  )
}

async function readFile(file: File): Promise<ExpectedFile> {
  return readExpectedFile(file.name, await bytesOf(file, EXPECTED_FILE_BYTES_MAX, file.name))
}

function ConnectionState({
  connection,
  onRetry,
}: {
  readonly connection: EnclaveConnection
  readonly onRetry: () => void
}) {
  return (
    <div class="connection" aria-live="polite">
      <ConnectionWords connection={connection} onRetry={onRetry} />
    </div>
  )
}

function ConnectionWords({
  connection,
  onRetry,
}: {
  readonly connection: EnclaveConnection
  readonly onRetry: () => void
}) {
  switch (connection.kind) {
    case 'none':
      return (
        <p>
          <State tone="open">Not established</State> You expect no enclave yet, so it is not known
          who holds the key that signs answers. Nothing is sent until an enclave proved that it is
          the expected one.
        </p>
      )
    case 'connecting':
      return (
        <>
          <p>
            <State tone="open">Asking</State> the enclaves for their documents.
          </p>
          <Busy what="The enclaves make their documents…" />
        </>
      )
    case 'failed':
      return (
        <FaultNotice fault={connection.fault} onRetry={onRetry}>
          {connection.fault instanceof PolicyFault ? connection.fault.advice : undefined}
        </FaultNotice>
      )
    case 'refused':
      return (
        <FaultNotice fault={new Error(connection.refusal.message)} onRetry={onRetry}>
          {adviceFor(connection.refusal)}
        </FaultNotice>
      )
    case 'ready':
      return <Enclaves {...connection} />
  }
}

function Enclaves({
  affidavit: { notaries, refused },
  isDevelopment,
  isGatewaysWord,
}: Extract<EnclaveConnection, { kind: 'ready' }>) {
  const [are, by] = [
    notaries.length === 1 ? 'One enclave is' : `${notaries.length} enclaves are`,
    isGatewaysWord ? 'this development gateway says' : 'you expect',
  ]
  return (
    <Development.Provider value={isDevelopment}>
      <p>
        {isDevelopment ? (
          <State tone="warn">Development</State>
        ) : (
          <State tone="good">Established</State>
        )}{' '}
        {are} as {by}.
      </p>
      {notaries.map(({ notary, validUntil, checks }) => (
        <details key={notary}>
          <summary>Notary {notary.slice(0, 14)}…</summary>
          <p>
            <Hex value={notary} />, until <Time ms={validUntil.getTime()} />
          </p>
          <CheckList checks={checks} />
        </details>
      ))}
      {refused.map(({ notary, reason }) => (
        <div class="notice warn" key={notary}>
          <p>
            Another notary is refused: <Hex value={notary} />
          </p>
          <p>
            <OutsideText text={reason.message} shownMax={500} />
          </p>
        </div>
      ))}
    </Development.Provider>
  )
}
