import type { ApiCall, DocumentedApi } from '../../support/documented-api.ts'
import type { Endpoint, EndpointRequest, FieldPlace, KnownFacts } from './endpoints.ts'
import type { FieldRow, Rejection } from './field-row.ts'

/** The endpoint of a walk, the API, and the known facts. */
export type Walked = {
  readonly api: DocumentedApi
  readonly known: KnownFacts
  readonly endpoint: Endpoint
}

/** The call for an endpoint's request. */
export function callOf(
  endpoint: Endpoint,
  { body, query = {}, path = {} }: EndpointRequest,
): ApiCall {
  const parameters = new URLSearchParams()
  for (const [name, value] of Object.entries(query))
    for (const text of [value].flat()) if (text !== undefined) parameters.append(name, String(text))
  const target = endpoint.path.replaceAll(/\{(\w+)\}/g, (_, name: string) =>
    encodeURIComponent(String(path[name])),
  )
  return {
    method: endpoint.method,
    path: endpoint.path,
    target: parameters.size > 0 ? `${target}?${parameters}` : target,
    ...(body === undefined ? {} : { body: endpoint.isForm ? formOf(body) : body }),
  }
}

/**
 * Tries every field of an endpoint with every value of its rows. Gives the values that were wrongly
 * refused or wrongly accepted, in words.
 */
export async function walkFields(walked: Walked): Promise<readonly string[]> {
  const { endpoint, known } = walked
  const trials = Object.entries(endpoint.rows?.(known) ?? {}).flatMap(([place, rows]) =>
    rows.flatMap((row) => trialsOf(place as FieldPlace, row)),
  )
  const faults: string[] = []
  await eachOf(trials, async (trial) => {
    for (const fault of await tryValue(walked, trial))
      faults.push(`${trial.place}.${trial.row.field} = ${textOf(trial.value)} ${fault}`)
  })
  return faults
}

/** Visits four items at the same time, which also makes load. */
export async function eachOf<Item>(
  items: readonly Item[],
  visit: (item: Item) => Promise<void>,
): Promise<void> {
  const queue = items.values()
  const work = async () => {
    for (const item of queue) await visit(item)
  }
  await Promise.all([work(), work(), work(), work()])
}

type Trial = {
  readonly place: FieldPlace
  readonly row: FieldRow
  readonly value: unknown
  /** Null for a value that is valid. */
  readonly rejection: Rejection | null
}

function trialsOf(place: FieldPlace, row: FieldRow): readonly Trial[] {
  return [
    ...row.accepts.map((value) => ({ place, row, value, rejection: null })),
    ...row.rejects.map((rejection) => ({ place, row, value: rejection.value, rejection })),
  ]
}

async function tryValue(
  { api, known, endpoint }: Walked,
  trial: Trial,
): Promise<readonly string[]> {
  const { place, row, value, rejection } = trial
  const base = endpoint.request?.(known) ?? {}
  const request = { ...base, [place]: { ...base[place], ...row.beside, [row.field]: value } }
  const { status, value: reply } = await api.call(callOf(endpoint, request))
  const isAllowed = isDocumented({ api, endpoint }, trial, request)
  const isToBeAllowed = rejection === null || rejection.isBeyondSchema === true
  const isAsExpected = rejection === null ? status === 200 : isRefusal(reply, trial, rejection)
  return [
    ...(isAsExpected ? [] : [`→ ${status} ${textOf(reply)}`]),
    ...(isAllowed === isToBeAllowed
      ? []
      : [`is ${isAllowed ? 'allowed' : 'forbidden'} by the document`]),
  ]
}

function isDocumented(
  { api, endpoint }: Pick<Walked, 'api' | 'endpoint'>,
  { place, row, value }: Trial,
  { body }: EndpointRequest,
): boolean {
  if (place !== 'body') return api.allowsParameter(endpoint, { in: place, name: row.field }, value)
  return api.allowsBody(endpoint, endpoint.isForm ? body : JSON.parse(JSON.stringify(body)))
}

/**
 * Whether it is a 422 (interface, part 7) whose faults all concern the field, with the expected
 * fault among them.
 */
function isRefusal(reply: unknown, { place, row }: Trial, { at, type }: Rejection): boolean {
  const { detail = [] } = reply as { readonly detail?: readonly Fault[] }
  const wanted = JSON.stringify([place, row.field, ...at])
  return (
    detail.every(({ loc }) => loc[0] === place && loc[1] === row.field) &&
    detail.some((fault) => JSON.stringify(fault.loc) === wanted && fault.type === type)
  )
}

type Fault = { readonly loc: readonly unknown[]; readonly type: string }

function formOf(members: Readonly<Record<string, unknown>>): FormData {
  const form = new FormData()
  for (const [name, value] of Object.entries(members)) {
    if (value instanceof Uint8Array) form.append(name, new Blob([new Uint8Array(value)]), name)
    else if (value !== undefined) form.append(name, String(value))
  }
  return form
}

function textOf(value: unknown): string {
  return `${JSON.stringify(value)}`.slice(0, 300)
}
