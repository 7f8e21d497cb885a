import type { ComponentChildren } from 'preact'
import { formsOf } from '../../../attestation/json/forms.ts'
import { isJsonObject, type Json } from '../../../attestation/json/value.ts'
import { askEvidence, GatewayFault } from '../kit/gateway.ts'
import { State, type Tone } from '../kit/notices.tsx'
import { OutsideText } from '../kit/outside-text.tsx'
import { useLoaded } from '../kit/use-loaded.ts'
import { Count } from '../kit/values.tsx'

const { arrayOf, countOf, objectOf, textOf } = formsOf('bad_answer', "the gateway's answer: ")

/** How often the state is read while the page is seen. */
const EVERY_MS = 10_000

/** What anyone can see of the service. */
export type ServiceState = {
  /** Parts that verified completions need, those that fail; empty: all of them work. */
  readonly failing: readonly string[]
  readonly isChainFailing: boolean
  /** The security module is simulated: no evidence of this service proves anything. */
  readonly isStaging: boolean
  readonly anchorsWaiting: number
  readonly enclavesInUse: number
  /** Leaves of its newest logs. */
  readonly leaves: number
  /** There are more logs, whose leaves are not counted. */
  readonly hasMoreLogs: boolean
  /** Ids of models that answer with evidence now. */
  readonly models: readonly string[]
}

/** The service's state, read anew every some seconds. */
export function useServiceState() {
  return useLoaded(readState, [], { everyMs: EVERY_MS })
}

async function readState(signal: AbortSignal): Promise<ServiceState> {
  const [ready, notaries, logs, models] = await Promise.all([
    readReadiness(signal),
    askEvidence('/v1/notaries', { signal }),
    askEvidence('/v1/log?limit=100', { signal }),
    askEvidence('/v1/verified/models', { signal }),
  ])
  const sizes = arrayOf(objectOf(logs, 'it').logs, 'logs').map((log) =>
    countOf(objectOf(log, 'a log').size, 'size'),
  )
  return {
    ...ready,
    enclavesInUse: arrayOf(objectOf(notaries, 'it').notaries, 'notaries').filter(
      (one) => isJsonObject(one) && one.status === 'in_use',
    ).length,
    hasMoreLogs: objectOf(logs, 'it').cursor !== null,
    leaves: sizes.reduce((sum, size) => sum + size, 0),
    models: arrayOf(objectOf(models, 'it').data, 'data').map((model) =>
      textOf(objectOf(model, 'a model').id, 'id'),
    ),
  }
}

async function readReadiness(signal: AbortSignal) {
  const json = objectOf(await askReadiness(signal), 'it')
  const chain = objectOf(json.chain, 'chain')
  return {
    failing: arrayOf(json.failing, 'failing').map((part) => textOf(part, 'failing')),
    isChainFailing: chain.status !== 'ok',
    isStaging: json.staging === true,
    anchorsWaiting: countOf(chain.anchors_waiting, 'anchors_waiting'),
  }
}

/** A gateway that is not ready says why with status 503. */
async function askReadiness(signal: AbortSignal): Promise<Json> {
  try {
    return await askEvidence('/readyz', { signal })
  } catch (fault) {
    const answer = fault instanceof GatewayFault ? (fault.answer as Json | undefined) : undefined
    if (isJsonObject(answer) && Object.hasOwn(answer, 'failing')) return answer
    throw fault
  }
}

const PARTS = [
  { id: 'enclave', name: 'Enclave', what: 'answers' },
  { id: 'attestation', name: 'Attestation', what: 'is valid' },
  { id: 'commits', name: 'Commits', what: 'are made' },
  { id: 'database', name: 'Database', what: 'answers' },
] as const

/** The parts of the service, each with its state; `state` is null before it is known. */
export function ServiceParts({
  state,
  isLost,
}: {
  readonly state: ServiceState | null
  /** The gateway does not answer now; `state` is from before. */
  readonly isLost: boolean
}) {
  return (
    <>
      {state?.isStaging && (
        <p class="service-line">
          <State tone="bad">Staging</State> The security module is simulated, so the signatures of
          this service are not evidence.
        </p>
      )}
      <p class="service-line" role="status">
        <Summary state={state} isLost={isLost} />
      </p>
      <dl class="figures parts">
        {PARTS.map(({ id, name, what }) => (
          <Part key={id} name={name}>
            {state === null || isLost ? (
              '…'
            ) : state.failing.includes(id) ? (
              <State tone="bad">fails</State>
            ) : (
              <State tone="good">{what}</State>
            )}
          </Part>
        ))}
        <Part name="Chain">
          {state === null || isLost ? (
            '…'
          ) : (
            <>
              {state.isChainFailing ? (
                <State tone="warn">out of reach</State>
              ) : (
                <State tone="good">takes anchors</State>
              )}{' '}
              {state.anchorsWaiting > 0 && (
                <span class="faint">
                  <Count value={state.anchorsWaiting} /> waiting
                </span>
              )}
            </>
          )}
        </Part>
        <Part name="Enclaves in use">
          {state === null ? '…' : <Count value={state.enclavesInUse} />}
        </Part>
        <Part name="Answers in its logs">
          {state === null ? (
            '…'
          ) : (
            <a href="/log">
              <Count value={state.leaves} />
              {state.hasMoreLogs && ' and more'}
            </a>
          )}
        </Part>
        <Part name="Models with evidence">
          {state === null ? '…' : <Models ids={state.models} />}
        </Part>
      </dl>
    </>
  )
}

function Part({ name, children }: { readonly name: string; readonly children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  )
}

function Summary({
  state,
  isLost,
}: {
  readonly state: ServiceState | null
  readonly isLost: boolean
}) {
  if (isLost) return <Line tone="bad" state="no answer" text="The gateway does not answer now." />
  if (state === null) return <span class="faint">Asking for its state…</span>
  if (state.failing.includes('stopping'))
    return (
      <Line
        tone="warn"
        state="stopping"
        text="The gateway is stopping: it finishes its calls, and will soon take no new calls."
      />
    )
  if (state.failing.length > 0)
    return (
      <Line
        tone="bad"
        state="not ready"
        text="The gateway cannot serve answers with evidence now. You can read and check stored answers."
      />
    )
  return (
    <Line
      tone={state.isChainFailing ? 'warn' : 'good'}
      state="ready"
      text={
        state.isChainFailing
          ? 'Answers with evidence are served. Their anchors wait until the chain can be reached.'
          : 'Answers with evidence are served.'
      }
    />
  )
}

function Line({
  tone,
  state,
  text,
}: {
  readonly tone: Tone
  readonly state: string
  readonly text: string
}) {
  return (
    <>
      <State tone={tone}>{state}</State> {text}
    </>
  )
}

/** Ids of models are the operator's, and his providers'. */
function Models({ ids }: { readonly ids: readonly string[] }) {
  const shown = ids.slice(0, 3)
  return (
    <>
      {ids.length === 0 ? 'none now' : ''}
      {shown.map((id, at) => (
        <span key={id}>
          {at > 0 && ', '}
          <OutsideText text={id} isOneLine={true} shownMax={60} />
        </span>
      ))}
      {ids.length > shown.length && ` and ${ids.length - shown.length} more`}
    </>
  )
}
