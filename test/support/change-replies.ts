import { type Rpc, RpcError, type RpcReply } from '#client/rpc.ts'

/** Changes a method's results; `refused`: the endpoint has no such method. */
export type Change = 'refused' | ((result: never) => unknown)

/** An endpoint that answers as `rpc` does, except for the results of some methods. */
export function changeReplies(rpc: Rpc, changes: Readonly<Record<string, Change>>): Rpc {
  return {
    ...rpc,
    async call(method, params, signal) {
      const change = changes[method]
      if (change === 'refused')
        throw new RpcError('refused', `${method}: the method does not exist`)
      const result = await rpc.call(method, params, signal)
      return change === undefined ? result : change(result as never)
    },
    async batch(calls, signal) {
      const replies = await rpc.batch(calls, signal)
      return replies.map((reply, at) => {
        const change = changes[calls[at]?.method ?? '']
        if (change === undefined || reply.kind === 'error') return reply
        if (change === 'refused')
          return { kind: 'error', code: -32601, message: 'the method does not exist' }
        return { kind: 'result', value: change(reply.value as never) }
      })
    },
  }
}

/** Answers in place of a method; `refused`: the endpoint has no such method. */
export type Answer = 'refused' | ((params: readonly unknown[]) => unknown)

/** An endpoint that does not get calls of some methods: these answers are given instead. */
export function answerInstead(rpc: Rpc, answers: Readonly<Record<string, Answer>>): Rpc {
  const call: Rpc['call'] = async (method, params, signal) => {
    const answer = answers[method]
    if (answer === 'refused') throw new RpcError('refused', `${method}: the method does not exist`)
    return answer === undefined ? await rpc.call(method, params, signal) : answer(params)
  }
  return {
    ...rpc,
    call,
    batch: (calls, signal) =>
      Promise.all(
        calls.map(({ method, params }) =>
          call(method, params, signal).then(
            (value): RpcReply => ({ kind: 'result', value }),
            (error): RpcReply => {
              if (!(error instanceof RpcError) || error.code !== 'refused') throw error
              return { kind: 'error', code: -32601, message: error.message }
            },
          ),
        ),
      ),
  }
}
