import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'
import { expect, it } from 'vitest'
import { createDocument } from '#src/api/openapi/document.ts'
import { ROUTES } from '../../../support/api-routes.ts'
import { CHAT_REQUEST, postChat, VERIFIED_PATH } from '../../../support/calls.ts'
import { useGateway } from '../../../support/gateway.ts'

type DocumentedReply = { readonly description: string; readonly content: object }

const DOCUMENT = createDocument(ROUTES, { title: 'T', description: 'D' }) as {
  readonly paths: Readonly<
    Record<
      string,
      Readonly<
        Record<
          string,
          {
            readonly description?: string
            readonly responses: Readonly<Record<string, DocumentedReply>>
            readonly security: readonly object[]
          }
        >
      >
    >
  >
}
const keyOf = ({ method, path }: { readonly method: string; readonly path: string }) =>
  `${method} ${path}`
const DOCUMENTED = Object.entries(DOCUMENT.paths).flatMap(([path, methods]) =>
  Object.keys(methods).map((method) => keyOf({ method: method.toUpperCase(), path })),
)
/** Routes of the documentation itself. */
const UNDOCUMENTED = ['GET /openapi.json']
/** What is for people, and not part of the interface. */
const PAGES_TAG = 'Pages'
const MESSAGES_PATH = '/v1/verified/anthropic/v1/messages'
const COUNT_PATH = `${MESSAGES_PATH}/count_tokens`

const ajv = new Ajv2020({ strict: false, validateFormats: false })
ajv.addSchema({ $id: 'document', ...DOCUMENT })

/** Of what an operation answers with a status, or of the events that it streams. */
function validatorOf(
  [method, path]: readonly [string, string],
  status = '200',
  type = 'application/json',
): ValidateFunction {
  const steps = [
    'paths',
    path,
    method.toLowerCase(),
    'responses',
    status,
    'content',
    type,
    'schema',
  ]
  const pointer = steps
    .map((step) => step.replaceAll('~', '~0').replaceAll('/', '~1'))
    .map(encodeURIComponent)
  return ajv.compile({ $ref: `document#/${pointer.join('/')}` })
}

const NODE_INFO = {
  gpu_model: null,
  vram: null,
  gpu_count: null,
  cpu_model: 'c',
  cpu_count: 1,
  ram: 1,
  network_download_speed: 1.5,
  network_upload_speed: null,
  operating_system: 'o',
}

const gateway = await useGateway({ settings: { providerModels: ['gpt-mini'] } })
const { node_id } = await call('POST', '/v1/dashboard/node', { node_name: 'mine' })
const nodeId = String(node_id)
const { hash } = (await (await postChat(gateway, CHAT_REQUEST)).json()) as { readonly hash: string }
await call('POST', '/v1/dashboard/keys', { name: 'other' })
await call('POST', '/v1/node/info', { ...NODE_INFO, node_id: nodeId })
await call('POST', '/v1/node/benchmark', {
  node_id: nodeId,
  model_name: 'm',
  tokens_per_second: 5,
})

async function call(
  method: string,
  path: string,
  body?: object,
): Promise<Readonly<Record<string, unknown>>> {
  const headers = { authorization: `Bearer ${gateway.key}`, 'content-type': 'application/json' }
  const reply = await fetch(gateway.url + path, {
    method,
    headers,
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  })
  return (await reply.json()) as Readonly<Record<string, unknown>>
}

function expectValid(validate: ValidateFunction, value: unknown): void {
  validate(value)
  expect(validate.errors ?? []).toEqual([])
}

it('the API document has every route, and nothing else', () => {
  const routes = gateway.app.routes
    .filter(({ tag }) => tag !== PAGES_TAG)
    .map(keyOf)
    .filter((route) => !UNDOCUMENTED.includes(route))
  expect(DOCUMENTED.toSorted()).toEqual(
    routes.map((route) => route.replaceAll(/[:*](\w+)/g, '{$1}')).toSorted(),
  )
})

it('the API document is served as it is made, and each of its references leads somewhere', async () => {
  const reply = await fetch(`${gateway.url}/openapi.json`)
  const served = await reply.text()
  const { info, ...rest } = JSON.parse(served)
  const { info: _, ...made } = JSON.parse(JSON.stringify(DOCUMENT))
  expect(rest).toEqual(made)
  expect(info).toMatchObject({ title: 'Affidavit', version: '1.0.0' })
  const names = new Set(Object.keys(rest.components.schemas))
  const refs = [...served.matchAll(/"\$ref":"#\/components\/schemas\/(\w+)"/g)].map(
    ([, name]) => name ?? '',
  )
  expect(refs.length).toBeGreaterThan(50)
  expect(refs.filter((name) => !names.has(name))).toEqual([])
})

it('the API document says of each operation whether it needs a key, as the gateway does', async () => {
  for (const [path, methods] of Object.entries(DOCUMENT.paths))
    for (const [method, { security }] of Object.entries(methods)) {
      const url = gateway.url + path.replaceAll(/\{\w+\}/g, 'ab')
      const { status } = await fetch(url, { method: method.toUpperCase() })
      expect([method, path, status === 401]).toEqual([method, path, security.length > 0])
    }
})

function operationOf(method: string, path: string) {
  const operation = DOCUMENT.paths[path]?.[method]
  if (operation === undefined) throw new TypeError(`expected the operation ${method} ${path}`)
  return operation
}

/** The statuses under which an operation lists an error code. */
function statusesOf(code: string, method: string, path: string): readonly number[] {
  return Object.entries(operationOf(method, path).responses)
    .filter(([, { description }]) => description.split(', ').includes(code))
    .map(([status]) => Number(status))
}

it('a refusal by a provider or a node stands under the statuses that it can have', () => {
  const given = [400, 409, 413, 422, 429]
  const statuses = (code: string, path: string) => statusesOf(code, 'post', path)
  expect(statuses('provider_refused', '/v1/embeddings')).toEqual(given)
  expect(statuses('provider_refused', '/v1/tool/search')).toEqual(given)
  const verified = [400, 401, 402, 403, 404, 409, 413, 422, 429]
  expect(statuses('provider_refused', VERIFIED_PATH)).toEqual(verified)
  const agents = verified.filter((status) => status !== 404 && status !== 422)
  expect(statuses('provider_refused', '/v1/verified/responses')).toEqual(agents)
  expect(statuses('provider_refused', MESSAGES_PATH)).toEqual(agents)
  expect(statuses('provider_refused', COUNT_PATH)).toEqual([400, 401, 403, 409, 413, 429])
  expect(statuses('node_refused', '/v1/chat/completions')).toEqual([400, 422])
  expect(statuses('node_refused', '/v1/messages')).toEqual([400])
})

it.each([
  [502, 'provider_credential_rejected', 'post', VERIFIED_PATH],
  [502, 'answer_too_large', 'post', VERIFIED_PATH],
  [503, 'log_full', 'post', VERIFIED_PATH],
  [504, 'enclave_timeout', 'post', VERIFIED_PATH],
  [529, 'log_full', 'post', MESSAGES_PATH],
  [402, 'insufficient_quota', 'post', COUNT_PATH],
  [503, 'no_available_inference_nodes', 'post', '/v1/images/generations'],
  [502, 'node_error', 'post', '/v1/images/edits'],
  [504, 'node_timeout', 'post', '/v1/images/generations'],
  [503, 'not_ready', 'get', '/v1/images/files/{id}'],
  [503, 'not_ready', 'get', '/v1/attestation'],
  [504, 'enclave_timeout', 'get', '/v1/attestation'],
  [503, 'overloaded', 'get', '/v1/dashboard/usage'],
  [503, 'overloaded', 'delete', '/v1/dashboard/keys/{id}'],
])('%i %s is among the errors of %s %s', (status, code, method, path) => {
  expect(statusesOf(code, method, path)).toEqual([status])
})

it('each operation that needs a key lists account_disabled', () => {
  for (const [path, methods] of Object.entries(DOCUMENT.paths))
    for (const [method, { security }] of Object.entries(methods))
      expect([method, path, statusesOf('account_disabled', method, path)]).toEqual([
        method,
        path,
        security.length > 0 ? [403] : [],
      ])
})

const gets = (): readonly (readonly [string, string])[] => {
  const log = `/v1/log/${gateway.enclave.notary}`
  return [
    ['/', '/'],
    ['/healthz', '/healthz'],
    ['/v1/models', '/v1/models'],
    ['/v1/models/{model}', '/v1/models/gpt-mini'],
    ['/v1/attestation', '/v1/attestation'],
    [VERIFIED_PATH, VERIFIED_PATH],
    [`${VERIFIED_PATH}/{hash}`, `${VERIFIED_PATH}/${hash}`],
    [`${VERIFIED_PATH}/{hash}/evidence`, `${VERIFIED_PATH}/${hash}/evidence`],
    ['/v1/log', '/v1/log'],
    ['/v1/log/{notary}', log],
    ['/v1/log/{notary}/heads', `${log}/heads`],
    ['/v1/log/{notary}/inclusion', `${log}/inclusion?index=0`],
    ['/v1/log/{notary}/consistency', `${log}/consistency?from=0`],
    ['/v1/log/{notary}/leaves', `${log}/leaves`],
    ['/v1/log/{notary}/records', `${log}/records`],
    ['/v1/node/info', `/v1/node/info?node_id=${nodeId}`],
    ['/v1/node/stats', `/v1/node/stats?node_id=${nodeId}`],
    ['/v1/node/stats/history', `/v1/node/stats/history?node_id=${nodeId}`],
    ['/v1/node/benchmark', `/v1/node/benchmark?node_id=${nodeId}&model=m`],
    ['/v1/network/stats', '/v1/network/stats'],
    ['/v1/dashboard/nodes', '/v1/dashboard/nodes'],
    ['/v1/dashboard/rate-limits', '/v1/dashboard/rate-limits'],
    ['/v1/dashboard/keys', '/v1/dashboard/keys'],
    ['/v1/dashboard/me', '/v1/dashboard/me'],
    ['/v1/dashboard/usage', '/v1/dashboard/usage?per=hour'],
    ['/v1/evidence/{hash}', `/v1/evidence/${hash}`],
    ['/v1/find', `/v1/find?q=${hash}`],
  ]
}

it('replies to GET are as documented', async () => {
  for (const [pattern, path] of gets())
    expectValid(validatorOf(['get', pattern]), await call('GET', path))
})

it('replies that refuse are as documented', async () => {
  const path = VERIFIED_PATH
  const refusal = { code: 'credential_mismatch', type: 'invalid_request_error', param: null }
  expectValid(validatorOf(['post', path], '422'), {
    response: 'NOK',
    error: { status_code: 422, message: 'm', ...refusal },
  })
  expectValid(validatorOf(['post', path], '422'), await call('POST', path, {}))
  const missing = await call('GET', `${path}/${'0'.repeat(64)}`)
  expectValid(validatorOf(['get', `${path}/{hash}`], '404'), missing)
  const reply = await fetch(gateway.url + path)
  expectValid(validatorOf(['get', path], '401'), await reply.json())
})

it('a reply that is not as documented is found', async () => {
  const validate = validatorOf(['get', '/v1/log/{notary}'])
  const log = await call('GET', `/v1/log/${gateway.enclave.notary}`)
  expect(validate({ ...log, more: 1 })).toBe(false)
  expect(validate({ ...log, size: '1' })).toBe(false)
})

it('two schemas of one name are refused', () => {
  const [first] = ROUTES
  if (first === undefined) throw new TypeError('expected routes')
  const other = { ...first, reply: { ...first.reply, schema: first.reply.schema.nullable() } }
  expect(() => createDocument([first, other], { title: '', description: '' })).toThrow(
    'two schemas named',
  )
})
