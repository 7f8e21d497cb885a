import { expect, it } from 'vitest'
import type { z } from 'zod'
import { ValidationError } from '#src/api/errors.ts'
import {
  createNode,
  nodeBenchmark,
  nodeInfo,
  updateNode,
} from '#src/nodes/protocol/registration.ts'
import { NODE_HARDWARE } from '../../../support/register-node.ts'
import { validateBody } from '../../../support/validate-body.ts'

type Form = 'createNode' | 'updateNode' | 'nodeInfo' | 'nodeBenchmark'
const FORMS: Readonly<Record<Form, z.ZodType>> = {
  createNode,
  updateNode,
  nodeInfo,
  nodeBenchmark,
}
const WHOLE: Readonly<Record<Form, object>> = {
  createNode: { node_name: 'my node' },
  updateNode: { node_id: 'a' },
  nodeInfo: { node_id: 'a', ...NODE_HARDWARE },
  nodeBenchmark: { node_id: 'a', model_name: 'm', tokens_per_second: 1 },
}

/** The places of the faults of a body with other or further members. */
function faultsOf(form: Form, members: object): readonly string[] {
  try {
    validateBody(FORMS[form], Buffer.from(JSON.stringify({ ...WHOLE[form], ...members })))
    return []
  } catch (error) {
    if (!(error instanceof ValidationError)) throw error
    return error.detail.map(({ loc }) => loc.join('.'))
  }
}

type Case = readonly [form: Form, member: string, values: readonly unknown[]]
const NAMES = [null, 7, 'ab', 'x'.repeat(41), 'a\u0000bc', 'a\u001b[2Jb', '    ']
const TEXTS = ['', 7, 'x'.repeat(257), 'a\u0000b', ' ']

it.each<Case>([
  ['createNode', 'node_name', [undefined, ...NAMES]],
  ['updateNode', 'node_id', [undefined, 7, '', 'x'.repeat(129)]],
  ['updateNode', 'node_name', NAMES.slice(1)],
  ['updateNode', 'is_archived', ['true', 1]],
  ['nodeInfo', 'node_id', [undefined, null]],
  ...['ram', 'vram', 'gpu_count', 'cpu_count'].map(
    (name): Case => ['nodeInfo', name, [undefined, -1, 1.5, '1', 1e13, true]],
  ),
  ['nodeInfo', 'power_limit', [-1, 1.5, '1', 1e13, true]],
  ...['network_download_speed', 'network_upload_speed'].map(
    (name): Case => ['nodeInfo', name, [undefined, -0.1, '1', 1e10, [1]]],
  ),
  ...['gpu_model', 'cpu_model', 'operating_system'].map(
    (name): Case => ['nodeInfo', name, [undefined, ...TEXTS]],
  ),
  ['nodeInfo', 'version', TEXTS],
  ...['cpu_model', 'operating_system', 'ram'].map((name): Case => ['nodeInfo', name, [null]]),
  ['nodeBenchmark', 'node_id', [undefined, '', 7, null]],
  ['nodeBenchmark', 'model_name', [undefined, '', 7, null, 'x'.repeat(513), 'a\u0000b']],
  ['nodeBenchmark', 'tokens_per_second', [undefined, -1, '1', null, 1_000_001]],
])('the form %s is refused for its member %s with each of %j', (form, member, values) => {
  for (const value of values)
    expect([value, faultsOf(form, { [member]: value })]).toEqual([value, [`body.${member}`]])
})

it.each<[Form, object]>([
  ['createNode', { node_name: 'abc', other: { deep: [1] } }],
  ['createNode', { node_name: '🦊'.repeat(40) }],
  ['createNode', { node_name: "a'; drop table nodes; --" }],
  ['updateNode', { node_name: null, is_archived: null }],
  ['nodeInfo', { gpu_model: null, vram: null, gpu_count: null, cpu_count: null, ram: 0 }],
  ['nodeInfo', { power_limit: undefined, version: undefined, network_upload_speed: null }],
  ['nodeBenchmark', { model_name: '🦊'.repeat(512), tokens_per_second: 0 }],
])('the form %s is taken with the members %j', (form, members) => {
  expect(faultsOf(form, members)).toEqual([])
})

it('the form of an update is refused with all its faults at once', () => {
  expect(faultsOf('updateNode', { node_name: 1, is_archived: 1 })).toEqual([
    'body.node_name',
    'body.is_archived',
  ])
})
