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

const TEXTS = ['x'.repeat(257), 'a\u0000b', ' ']
const TEXT_MEMBERS = ['gpu_model', 'cpu_model', 'operating_system', 'version']
const COUNTS = ['ram', 'vram', 'gpu_count', 'cpu_count', 'power_limit']
const SPEEDS = ['network_download_speed', 'network_upload_speed']

// The types and the required members: test/integration/conformance/node-rows.ts.
it.each<readonly [form: Form, members: readonly string[], values: readonly unknown[]]>([
  ['createNode', ['node_name'], ['a\u0000bc', 'a\u001b[2Jb']],
  ['updateNode', ['node_name'], ['a\u0000bc', '    ']],
  ['updateNode', ['node_id'], ['x'.repeat(129)]],
  ['nodeInfo', COUNTS, [1e13]],
  ['nodeInfo', SPEEDS, [1e10]],
  ['nodeInfo', TEXT_MEMBERS, TEXTS],
  ['nodeBenchmark', ['model_name'], ['x'.repeat(513), 'a\u0000b']],
  ['nodeBenchmark', ['tokens_per_second'], [1_000_001]],
])('the form %s is refused for its members %j with each of %j', (form, members, values) => {
  for (const member of members)
    for (const value of values)
      expect([value, faultsOf(form, { [member]: value })]).toEqual([value, [`body.${member}`]])
})

it.each<[Form, object]>([
  ['createNode', { node_name: 'abc', other: { deep: [1] } }],
  ['createNode', { node_name: '🦊'.repeat(40) }],
  ['createNode', { node_name: "a'; drop table nodes; --" }],
  ['nodeBenchmark', { model_name: '🦊'.repeat(512), tokens_per_second: 0 }],
])('the form %s is taken with the members %j', (form, members) => {
  expect(faultsOf(form, members)).toEqual([])
})
