import { State, type Tone } from '../kit/notices.tsx'

/** The state of an anchor (`src/chain/anchors-store.ts`). */
export type AnchorStateName = 'pending' | 'mined' | 'confirmed' | 'reverted' | 'taken'

const STATES: Readonly<Record<AnchorStateName, readonly [Tone, string]>> = {
  pending: ['open', 'in no block'],
  mined: ['open', 'in a block'],
  confirmed: ['good', 'confirmed'],
  reverted: ['bad', 'reverted'],
  taken: ['warn', 'nonce was taken'],
}

/** The state of an anchor in words. Only a confirmed anchor is green. */
export function AnchorStateLabel({
  state,
  block = null,
}: {
  readonly state: AnchorStateName
  readonly block?: number | null
}) {
  const [tone, words] = STATES[state]
  return (
    <>
      <State tone={tone}>{words}</State>
      {block !== null && <span class="faint"> block {block}</span>}
    </>
  )
}
