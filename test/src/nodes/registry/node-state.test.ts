import { expect, it } from 'vitest'
import {
  isNodeState,
  NODE_STATES,
  probeState,
  startState,
  statusText,
  stopState,
} from '#src/nodes/registry/node-state.ts'

it.each([
  [null, 'RUNNING_BENCHMARKING'],
  ['STOPPED_DEGRADED', 'RUNNING_BENCHMARKING'],
  ['STOPPED_BENCHMARK_FAILED', 'RUNNING_BENCHMARKING'],
  ['STOPPED', 'RUNNING'],
  ['STOPPED_DISABLED', 'RUNNING_DISABLED'],
] as const)('a node that was %s starts as %s', (before, after) => {
  expect(startState(before)).toBe(after)
})

it.each(NODE_STATES)(
  'a node that a killed gateway left behind as %s starts as after its stop',
  (state) => {
    expect(startState(state)).toBe(startState(stopState(state)))
  },
)

it.each([
  ['RUNNING', 'STOPPED'],
  ['RUNNING_BENCHMARKING', 'STOPPED_BENCHMARK_FAILED'],
  ['RUNNING_DEGRADED', 'STOPPED_DEGRADED'],
  ['RUNNING_DISABLED', 'STOPPED_DISABLED'],
] as const)('a node that is %s stops as %s', (before, after) => {
  expect(stopState(before)).toBe(after)
  expect(stopState(after)).toBe(after)
})

it.each([
  ['RUNNING_BENCHMARKING', 'healthy', 'RUNNING'],
  ['RUNNING_BENCHMARKING', 'slow', 'RUNNING_DEGRADED'],
  ['RUNNING_BENCHMARKING', 'failed', 'RUNNING_BENCHMARKING'],
  ['RUNNING_DEGRADED', 'healthy', 'RUNNING'],
  ['RUNNING_DEGRADED', 'slow', 'RUNNING_DEGRADED'],
  ['RUNNING_DEGRADED', 'failed', 'RUNNING_DEGRADED'],
  ['RUNNING', 'healthy', 'RUNNING'],
  ['RUNNING', 'slow', 'RUNNING_DEGRADED'],
  ['RUNNING', 'failed', 'RUNNING_DEGRADED'],
  ['RUNNING_DISABLED', 'healthy', 'RUNNING_DISABLED'],
  ['STOPPED', 'healthy', 'STOPPED'],
] as const)('a node that is %s after a %s probe is %s', (before, outcome, after) => {
  expect(probeState(before, outcome)).toBe(after)
})

it.each([
  ['RUNNING', 'Running'],
  ['RUNNING_BENCHMARKING', 'Running - verifying performance'],
  ['RUNNING_DEGRADED', 'Running - performance degraded'],
  ['RUNNING_DISABLED', 'Stopped'],
  ['STOPPED', 'Stopped'],
  ['STOPPED_BENCHMARK_FAILED', 'Stopped'],
  ['STOPPED_DEGRADED', 'Stopped'],
  ['STOPPED_DISABLED', 'Stopped'],
  [null, 'Stopped'],
] as const)('the state %s is shown as "%s"', (state, text) => {
  expect(statusText(state)).toBe(text)
})

it('isNodeState knows the states and nothing else', () => {
  expect(NODE_STATES.every(isNodeState)).toBe(true)
  for (const text of ['', 'running', 'RUNNING ', 'toString']) expect(isNodeState(text)).toBe(false)
})
