import './console.css'
import { showPage } from '../kit/frame.tsx'
import { takeDevelopmentExpectations } from '../verify/development-expectations.ts'
import { fillHere } from '../verify/fill-here.ts'
import { ConsolePage } from './console-page.tsx'

void takeDevelopmentExpectations(fillHere).then(() => showPage(<ConsolePage />))
