import { useRef } from 'preact/hooks'
import type { EnclaveDescription } from '../../enclaves/enclave-acts.ts'
import { Busy, FaultNotice, State, type Tone } from '../kit/notices.tsx'
import { OutsideText } from '../kit/outside-text.tsx'
import { useLoaded } from '../kit/use-loaded.ts'
import { Count } from '../kit/values.tsx'
import { ConfirmButton } from './confirm-button.tsx'
import { NotaryLink } from './notary-link.tsx'
import { useSession } from './session.ts'
import { type Column, Table } from './table.tsx'
import { ActionState, useAction } from './use-action.tsx'

const ENCLAVES_PATH = '/v1/admin/enclaves'
/** The list changes by itself, so it is read repeatedly. */
const EVERY_MS = 3_000

export function EnclavesPart() {
  const session = useSession()
  const { value, fault, reload } = useLoaded(
    (signal) =>
      session.ask<{ readonly enclaves: readonly EnclaveDescription[] }>(ENCLAVES_PATH, { signal }),
    [session],
    { everyMs: EVERY_MS },
  )
  return (
    <>
      <h1 tabIndex={-1}>Enclaves</h1>
      <p>
        The enclaves of the gateway process that answers this page. A change here lasts until the
        gateway stops: its configuration says which enclaves it starts with. With{' '}
        <code>GATEWAY_PROCESSES</code>, this page changes nothing: use{' '}
        <code>affidavit enclaves</code>, which acts at all processes.
      </p>
      <AddEnclave onAdded={reload} />
      <h2>Existing enclaves</h2>
      {fault !== null && <FaultNotice fault={fault} onRetry={reload} />}
      {value === null && fault === null && <Busy what="Asking for the enclaves…" />}
      <Table
        label="Enclaves"
        columns={columnsOf(reload)}
        rows={value === null ? null : value.enclaves}
        keyOf={({ url }) => url}
        empty="There are no enclaves: verified calls are refused."
      />
    </>
  )
}

/** The tone of each state of an enclave (src/enclaves/endpoint-state.ts). */
const TONES: Readonly<Record<string, Tone>> = {
  usable: 'good',
  draining: 'warn',
  drained: 'open',
  refused: 'bad',
  unreachable: 'bad',
  connecting: 'open',
}

function columnsOf(onChange: () => void): readonly Column<EnclaveDescription>[] {
  return [
    {
      title: 'Where',
      kind: 'name',
      cell: ({ url }) => <OutsideText text={url} isOneLine={true} shownMax={120} />,
    },
    { title: 'State', isSteady: true, cell: (enclave) => <EnclaveState {...enclave} /> },
    {
      title: 'Notary',
      cell: ({ notary }) =>
        notary === null ? <span class="faint">not known</span> : <NotaryLink notary={notary} />,
    },
    { title: 'Calls', kind: 'number', cell: ({ calls }) => <Count value={calls} /> },
    {
      title: 'Committed',
      kind: 'number',
      cell: ({ committed }) => (committed === null ? '–' : <Count value={committed} />),
    },
    {
      title: 'Actions',
      kind: 'actions',
      cell: (enclave) => <EnclaveButtons enclave={enclave} onChange={onChange} />,
    },
  ]
}

function EnclaveState({ state, fault }: EnclaveDescription) {
  return (
    <>
      <State tone={TONES[state] ?? 'open'}>{state}</State>
      {fault !== '' && (
        <p class="fault-line">
          <OutsideText text={fault} isOneLine={true} shownMax={300} />
        </p>
      )}
    </>
  )
}

function EnclaveButtons({
  enclave: { url, state },
  onChange,
}: {
  readonly enclave: EnclaveDescription
  readonly onChange: () => void
}) {
  const session = useSession()
  const drain = async () => {
    await session.ask(ENCLAVES_PATH, { method: 'PUT', body: { url } })
    onChange()
  }
  const use = async () => {
    await session.ask(ENCLAVES_PATH, { method: 'POST', body: { url } })
    onChange()
  }
  const remove = async () => {
    await session.ask(`${ENCLAVES_PATH}?url=${encodeURIComponent(url)}`, { method: 'DELETE' })
    onChange()
  }
  return (
    <>
      {state === 'draining' || state === 'drained' ? (
        <ConfirmButton label="Use again" what={url} title="Use this enclave again?" act={use}>
          <p>It gets calls after it is checked.</p>
        </ConfirmButton>
      ) : (
        <ConfirmButton label="Drain" what={url} title="Drain this enclave?" act={drain}>
          <p>
            It gets no new calls. Its running calls finish, and its log is committed. Then it is
            drained, and you may stop it. If it is the only enclave, verified calls are refused.
          </p>
        </ConfirmButton>
      )}
      {state !== 'usable' && state !== 'draining' && (
        <ConfirmButton label="Remove" what={url} title="Remove this enclave?" act={remove}>
          <p>The gateway no longer uses it, until you add it again.</p>
        </ConfirmButton>
      )}
    </>
  )
}

function AddEnclave({ onAdded }: { readonly onAdded: () => void }) {
  const session = useSession()
  const action = useAction()
  const field = useRef<HTMLInputElement>(null)
  const add = (event: Event) => {
    event.preventDefault()
    void action.run(async () => {
      const body = { url: field.current?.value.trim() ?? '' }
      await session.ask(ENCLAVES_PATH, { method: 'POST', body })
      if (field.current !== null) field.current.value = ''
      onAdded()
    })
  }
  return (
    <details class="card">
      <summary>Add an enclave</summary>
      <form class="row" onSubmit={add}>
        <div class="field">
          <label for="enclave-url">
            Its socket <span class="hint">unix:/run/enclave.sock</span>
          </label>
          <input
            id="enclave-url"
            ref={field}
            required
            maxlength={200}
            autocomplete="off"
            spellcheck={false}
          />
        </div>
        <button type="submit" class="primary" disabled={action.isActing}>
          Add the enclave
        </button>
      </form>
      <ActionState action={action} what="Adding the enclave…" />
    </details>
  )
}
