import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { Busy, FaultNotice } from '../kit/notices.tsx'

/** Something that the reader asked for, and how it goes. */
export type Action = {
  readonly isActing: boolean
  readonly fault: unknown
  /** Resolves with whether it went well; what `act` throws is `fault`. */
  readonly run: (act: () => Promise<void>) => Promise<boolean>
  /** Forgets the fault. */
  readonly reset: () => void
}

/** One thing at a time that takes a while and may fail. */
export function useAction(): Action {
  const [isActing, setIsActing] = useState(false)
  const [fault, setFault] = useState<unknown>(null)
  const run = async (act: () => Promise<void>) => {
    setFault(null)
    setIsActing(true)
    try {
      await act()
      return true
    } catch (refused) {
      setFault(refused)
      return false
    } finally {
      setIsActing(false)
    }
  }
  return { isActing, fault, run, reset: () => setFault(null) }
}

/** Says how an action goes, where it was asked for. */
export function ActionState({
  action: { isActing, fault },
  what,
  children,
}: {
  readonly action: Action
  readonly what: string
  /** What to do about its fault, where that is known better than by the fault itself. */
  readonly children?: ComponentChildren
}) {
  return (
    <>
      {isActing && <Busy what={what} />}
      {fault !== null && <FaultNotice fault={fault}>{children}</FaultNotice>}
    </>
  )
}
