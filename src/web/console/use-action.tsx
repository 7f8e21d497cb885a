import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { Busy, FaultNotice } from '../kit/notices.tsx'

/** An act that the reader asked for, and its state. */
export type Action = {
  readonly isActing: boolean
  readonly fault: unknown
  /** Resolves with whether `act` succeeded; the error that it throws becomes `fault`. */
  readonly run: (act: () => Promise<void>) => Promise<boolean>
  /** Forgets the fault. */
  readonly reset: () => void
}

/** Runs one act at a time; the act may take a while and may fail. */
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

/** Shows the state of an act, where the reader asked for it. */
export function ActionState({
  action: { isActing, fault },
  what,
  children,
}: {
  readonly action: Action
  readonly what: string
  /** Advice about the fault, where the page knows it better than the fault says it. */
  readonly children?: ComponentChildren
}) {
  return (
    <>
      {isActing && <Busy what={what} />}
      {fault !== null && <FaultNotice fault={fault}>{children}</FaultNotice>}
    </>
  )
}
