import { State, type Tone } from '../kit/notices.tsx'

/** See src/chain/anchors-store.ts. */
type AnchorStateName = 'pending' | 'mined' | 'confirmed' | 'reverted' | 'taken'

const STATES: Readonly<Record<AnchorStateName, readonly [Tone, string]>> = {
  pending: ['open', 'in no block'],
  mined: ['open', 'in a block'],
  confirmed: ['good', 'confirmed'],
  reverted: ['bad', 'reverted'],
  taken: ['warn', 'nonce was taken'],
}

/** Only a confirmed anchor is green. */
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
