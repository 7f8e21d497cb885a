import type { ComponentChildren } from 'preact'
import { formsOf } from '#attestation/json/forms.ts'
import { isJsonObject, type Json, type JsonObject } from '#attestation/json/value.ts'
import { askEvidence, OwnGatewayFault } from '../kit/gateway.ts'
import { State, type Tone } from '../kit/notices.tsx'
import { OutsideText } from '../kit/outside-text.tsx'
import { useLoaded } from '../kit/use-loaded.ts'
import { Count } from '../kit/values.tsx'

const { arrayOf, countOf, objectOf, textOf } = formsOf('bad_answer', "the gateway's answer: ")

/** Interval while the page is visible. */
const EVERY_MS = 10_000

type ServiceState = {
  /** The failing parts that verified completions need. Empty when all work. */
  readonly failing: readonly string[]
  readonly isChainFailing: boolean
  /** The security module is simulated, so evidence from this service proves nothing. */
  readonly isStaging: boolean
  /** The enclave, the chain and the models may be simulated too. */
  readonly isDevelopment: boolean
  readonly anchorsPending: number
  readonly enclavesInUse: number
  /** Leaf count of the newest logs. */
  readonly leaves: number
  /** True if there are further logs. Their leaves are not counted. */
  readonly hasMoreLogs: boolean
  /** Ids of models that answer with evidence now. */
  readonly models: readonly string[]
  /** By provider: patterns of ids (`gpt-*`) for further models that answer with evidence. */
  readonly patterns: ReadonlyMap<string, readonly string[]>
}

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
    patterns: patternsOf(objectOf(models, 'it')),
    hasMoreLogs: objectOf(logs, 'it').cursor !== null,
    leaves: sizes.reduce((sum, size) => sum + size, 0),
    models: arrayOf(objectOf(models, 'it').data, 'data').map((model) =>
      textOf(objectOf(model, 'a model').id, 'id'),
    ),
  }
}

/** A gateway may omit the patterns. */
function patternsOf({ patterns = [] }: JsonObject): ServiceState['patterns'] {
  const all = arrayOf(patterns, 'patterns').map((one) => objectOf(one, 'a pattern'))
  const byOwner = Map.groupBy(all, ({ owned_by }) => textOf(owned_by, 'owned_by'))
  return new Map(
    [...byOwner].map(([owner, own]) => [
      owner,
      own.map(({ pattern }) => textOf(pattern, 'pattern')),
    ]),
  )
}

async function readReadiness(signal: AbortSignal) {
  const json = objectOf(await askReadiness(signal), 'it')
  const chain = objectOf(json.chain, 'chain')
  return {
    failing: arrayOf(json.failing, 'failing').map((part) => textOf(part, 'failing')),
    isChainFailing: chain.status !== 'ok',
    isStaging: json.staging === true,
    isDevelopment: json.development === true,
    anchorsPending: countOf(chain.anchors_pending, 'anchors_pending'),
  }
}

/** A gateway that is not ready answers with status 503 and the reasons. */
async function askReadiness(signal: AbortSignal): Promise<Json> {
  try {
    return await askEvidence('/readyz', { signal })
  } catch (fault) {
    const answer = fault instanceof OwnGatewayFault ? (fault.answer as Json | undefined) : undefined
    if (isJsonObject(answer) && Object.hasOwn(answer, 'failing')) return answer
    throw fault
  }
}

const PARTS: Readonly<Record<string, string>> = {
  enclave: 'the enclave does not answer',
  attestation: 'its attestation is not valid',
  commits: 'answers cannot be committed to the log',
  database: 'the database does not answer',
}

/** `state` is null while the state is unknown. */
export function ServiceParts({
  state,
  isLost,
}: {
  readonly state: ServiceState | null
  /** True if the gateway does not answer now, and `state` is from an earlier answer. */
  readonly isLost: boolean
}) {
  return (
    <>
      <p class="service-line" role="status">
        <Summary state={state} isLost={isLost} />
      </p>
      {state !== null && <Simulated {...state} />}
      <dl class="figures">
        <Part name="Enclaves that sign">
          {state === null ? (
            '…'
          ) : (
            <a href="/log">
              <Count value={state.enclavesInUse} />
            </a>
          )}
        </Part>
        <Part name="Answers in the logs">
          {state === null ? (
            '…'
          ) : (
            <a href="/log">
              <Count value={state.leaves} />
              {state.hasMoreLogs && ' and more'}
            </a>
          )}
        </Part>
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
              {state.anchorsPending > 0 && (
                <span class="faint">
                  <Count value={state.anchorsPending} /> pending
                </span>
              )}
            </>
          )}
        </Part>
      </dl>
      {state !== null && <Models {...state} />}
    </>
  )
}

/** Says clearly if evidence from this service proves nothing. */
function Simulated({ isStaging, isDevelopment }: ServiceState) {
  if (!isStaging && !isDevelopment) return null
  return (
    <p class="service-line">
      {isStaging ? (
        <Line
          tone="warn"
          state="staging"
          text="The security module of the enclave is simulated, so its signatures are not evidence."
        />
      ) : (
        <Line
          tone="warn"
          state="development"
          text="This gateway is for development: its enclave may be a simulation, so its signatures are not evidence."
        />
      )}
    </p>
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
        text={`No answers with evidence now: ${state.failing.map((part) => PARTS[part] ?? part).join(', ')}. You can read and check stored answers.`}
      />
    )
  if (state.models.length === 0 && state.patterns.size === 0)
    return (
      <Line
        tone="warn"
        state="no models"
        text="All parts work, but the operator pays for no model: send a provider’s key with each call, in the header Fine-Tune-Authorization."
      />
    )
  return (
    <Line
      tone={state.isChainFailing ? 'warn' : 'good'}
      state="ready"
      text={
        state.isChainFailing
          ? 'Answers with evidence are served. Their anchors stay pending until the chain can be reached.'
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

/** Ids, names and patterns are texts of the operator and the providers. */
function Models({ models, patterns }: ServiceState) {
  const shown = models.slice(0, MODELS_SHOWN_MAX)
  return (
    <div class="models">
      {models.length > 0 && (
        <>
          <h3>Models that answer with evidence</h3>
          <p>
            {shown.map((id, at) => (
              <span key={id}>
                {at > 0 && ', '}
                <OutsideText text={id} isOneLine={true} shownMax={60} />
              </span>
            ))}
            {models.length > shown.length && (
              <>
                {' '}
                and <a href="/v1/verified/models">{models.length - shown.length} more</a>
              </>
            )}
          </p>
        </>
      )}
      {patterns.size > 0 && (
        <details open={models.length === 0}>
          <summary>
            {models.length === 0 ? 'Models that answer with evidence' : 'Other models'}: any model
            of a provider whose name matches a pattern
          </summary>
          <table class="patterns">
            <thead>
              <tr>
                <th scope="col">Any model of</th>
                <th scope="col">whose name matches</th>
              </tr>
            </thead>
            <tbody>
              {[...patterns].map(([provider, own]) => (
                <tr key={provider}>
                  <th scope="row">
                    <OutsideText text={provider} isOneLine={true} shownMax={60} />
                  </th>
                  <td>
                    <OutsideText text={own.join(', ')} isOneLine={true} shownMax={400} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </details>
      )}
    </div>
  )
}

const MODELS_SHOWN_MAX = 6
