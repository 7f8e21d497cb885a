import { describe, expect, it } from 'vitest'
import { createNode } from '../../support/register-node.ts'
import { SERVED_MODEL } from './endpoints.ts'
import { expectRefusal } from './reply-checks.ts'
import { SERVED_CALLS, type Stage } from './stage.ts'

/** Interface, 2.7, and facts: reports about nodes. */
export function walkNodes(stage: () => Stage): void {
  const create = ({ service }: Stage, name: string) =>
    createNode({ url: service.url, key: service.apiKey }, name)
  const listed = async (nodeId: string) => {
    const { value } = await stage().get('/v1/dashboard/nodes')
    const { nodes } = value as { readonly nodes: readonly { readonly node_id: string }[] }
    return nodes.find(({ node_id }) => node_id === nodeId)
  }

  describe('2.7: a new node', () => {
    it('a new node has an id of five words', async () => {
      const { value } = await stage().post('/v1/dashboard/node', { node_name: 'my node' })
      expect(value).toEqual({
        response: 'OK',
        node_id: expect.stringMatching(/^[a-z]+(_[a-z]+){4}$/),
      })
    })

    it('a new node has served nothing, and nothing is known of its hardware', async () => {
      const { get } = stage()
      const nodeId = await create(stage(), 'new node')
      const query = `?node_id=${nodeId}`
      expect((await get('/v1/node/info', query)).value).toMatchObject({
        node_id: nodeId,
        name_alias: 'new node',
        status: 'Stopped',
        run_duration_seconds: 0,
        gpu_model: null,
        cpu_model: null,
        ram: null,
        operating_system: null,
        version: null,
      })
      expect((await get('/v1/node/stats', query)).value).toEqual({
        requests_served: 0,
        requests_served_day: 0,
        completed_inferences: [],
        average_time_to_first_token: null,
        benchmark_tokens_per_second: null,
        benchmark_model_name: null,
        benchmark_created_at: null,
      })
      expectRefusal(await get('/v1/node/benchmark', `${query}&model=m`), 404, 'not_found')
    })

    it('a node takes no benchmark before its hardware is reported (facts)', async () => {
      const body = {
        node_id: await create(stage(), 'new node'),
        model_name: 'm',
        tokens_per_second: 1,
      }
      expectRefusal(await stage().post('/v1/node/benchmark', body), 404, 'not_found')
    })
  })

  describe('2.7: a node that serves', () => {
    it('a node has the last ten of its calls, the newest first', async () => {
      const { get, known } = stage()
      const read = async () => (await get('/v1/node/stats', `?node_id=${known.servingNode}`)).value
      await expect.poll(read, { timeout: 30_000 }).toMatchObject({ requests_served: SERVED_CALLS })
      const stats = (await read()) as { readonly completed_inferences: readonly Inference[] }
      expect(stats).toMatchObject({
        requests_served_day: SERVED_CALLS,
        benchmark_model_name: SERVED_MODEL,
        benchmark_tokens_per_second: 100,
      })
      const times = stats.completed_inferences.map(({ created_at }) => created_at)
      expect(times).toHaveLength(10)
      expect(times).toEqual(times.toSorted((left, right) => right - left))
      for (const one of stats.completed_inferences)
        expect(one).toMatchObject({
          model_name: SERVED_MODEL,
          total_tokens: one.prompt_tokens + one.completion_tokens,
        })
    })

    it('a node has its benchmark, and no benchmark of another model', async () => {
      const { get, known } = stage()
      const query = `?node_id=${known.servingNode}`
      const { value } = await get('/v1/node/benchmark', `${query}&model=${SERVED_MODEL}`)
      expect(value).toEqual({
        node_id: known.servingNode,
        model_name: SERVED_MODEL,
        tokens_per_second: 100,
      })
      expectRefusal(await get('/v1/node/benchmark', `${query}&model=other`), 404, 'not_found')
    })
  })

  describe('facts: a node that is changed', () => {
    const change = async (body: object) =>
      (await stage().api.call({ method: 'PUT', path: '/v1/dashboard/node', body })).value

    it('a node has what it was changed to, and the answer says what was changed', async () => {
      const node_id = await create(stage(), 'before')
      expect(await change({ node_id })).toEqual({
        is_name_updated: false,
        is_archival_status_updated: false,
      })
      expect(await change({ node_id, node_name: 'after', is_archived: true })).toEqual({
        is_name_updated: true,
        is_archival_status_updated: true,
      })
      expect(await listed(node_id)).toMatchObject({ name_alias: 'after', is_archived: true })
    })
  })

  it.each([
    ['GET', '/v1/node/info', '?node_id=no_such_node', undefined],
    ['GET', '/v1/node/stats', '?node_id=no_such_node', undefined],
    ['GET', '/v1/node/benchmark', '?node_id=no_such_node&model=m', undefined],
    ['PUT', '/v1/dashboard/node', '', {}],
    ['POST', '/v1/node/benchmark', '', { model_name: 'm', tokens_per_second: 1 }],
  ] as const)('facts: %s %s is 404 for a node that is none', async (method, path, query, body) => {
    const sent = body === undefined ? {} : { body: { ...body, node_id: 'no_such_node' } }
    const reply = await stage().api.call({ method, path, target: path + query, ...sent })
    expectRefusal(reply, 404, 'not_found')
  })
}

type Inference = {
  readonly prompt_tokens: number
  readonly completion_tokens: number
  readonly created_at: number
}
